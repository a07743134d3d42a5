"""Verdicts, medians and the printed result of benches."""

from __future__ import annotations

import argparse

import pytest

from core.errors import WorkerDied
from tests.benches.figures import medians, reach
from tests.benches.results import Result, markdown, print_result


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


class TurnsResult(Result, frozen=True, kw_only=True):
    turns: dict[str, dict[str, float | list[float]]]
    runs: int = 3


def test_every_result_is_a_markdown_table_of_its_ratios_and_figures() -> None:
    figures: dict[str, dict[str, float | list[float]]] = {"plain": {"tokens_per_s": 12.345, "busy": [0.5, 1.0]}}
    result = TurnsResult(
        ratios={"fast": 2.5, "slow": 0.5},
        reach={"fast": reach(2.5, at_least=2.0)},
        cores=2,
        system="Linux",
        turns=figures,
    )
    assert markdown("macluster bench x", result).splitlines() == [
        "`macluster bench x`: Linux, 2 cores",
        "",
        "| ratio | seen | target |  |",
        "| --- | --- | --- | --- |",
        "| fast | 2.5 | at least 2 | reached |",
        "| slow | 0.5 |  |  |",
        "",
        "| turns | tokens_per_s | busy |",
        "| --- | --- | --- |",
        "| plain | 12.3 | 0.5, 1 |",
    ]
