"""The benches of the wheel, run as commands."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.nightly
def test_the_bench_of_asking_together_runs_over_two_macs_and_answers_are_the_same() -> None:
    sizes = ("--runs", "1", "--rows", "2", "--tokens", "4", "--layers", "2", "--hidden", "64")
    command = [sys.executable, "-m", "tui.cli.main", "bench", "pair", *sizes, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["ratios"]["together_over_one_by_one"] > 0
    assert (shown["macs"], shown["simulated"], shown["same_tokens"]) == (2, True, True)


@pytest.mark.nightly
def test_the_bench_of_scenarios_runs_over_a_simulated_cluster() -> None:
    few = ("1-provider-streaming", "--requests", "3", "--concurrency", "2", "--warm-up", "1")
    command = [sys.executable, "-m", "tui.cli.main", "bench", "scenarios", *few, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode in (0, 1), done.stderr  # 1: a row is slower than its limit
    (shown,) = json.loads(done.stdout)["scenarios"]
    assert (shown["succeeded"], shown["requests"]) == (3, 3)
    assert {"total_e2e", "ttft", "parse"} <= set(shown["segments"])
