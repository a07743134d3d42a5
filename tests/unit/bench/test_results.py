"""Verdicts, medians and the printed result of benches."""

from __future__ import annotations

import argparse

import pytest

from core.bench.results import Result, medians, print_result, reach
from core.errors import WorkerDied


def test_a_reach_is_a_bound_from_one_side() -> None:
    assert reach(4.0, at_most=4.0).reached
    assert not reach(4.01, at_most=4.0).reached
    assert reach(0.97, at_least=0.97).reached
    assert not reach(0.96, at_least=0.97).reached


def test_a_reach_that_does_not_count_says_so() -> None:
    assert "NOT reached" in reach(0.5, at_least=0.97).line("speed", 0.5)
    assert "does not count here" in reach(0.5, at_least=0.97, counts=False).line("speed", 0.5)


def test_medians_go_by_name() -> None:
    assert medians([{"a": 1.0, "b": 9.0}, {"a": 3.0, "b": 5.0}, {"a": 2.0, "b": 7.0}]) == {"a": 2.0, "b": 7.0}


def test_an_error_is_said_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    def measure(_: argparse.Namespace) -> Result:
        raise WorkerDied("It ended.")

    assert print_result(argparse.ArgumentParser(prog="bench"), measure, str, []) == 1
    assert "bench: It ended." in capsys.readouterr().err
