"""The benches of the wheel as people run them."""

from __future__ import annotations

import json
import subprocess
import sys


def test_the_bench_of_asking_together_runs_over_two_macs_and_answers_are_the_same() -> None:
    sizes = ("--runs", "1", "--rows", "2", "--tokens", "4", "--layers", "2", "--hidden", "64")
    command = [sys.executable, "-m", "tui.cli.main", "bench", "pair", *sizes, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["ratios"]["together_over_one_by_one"] > 0
    assert (shown["macs"], shown["simulated"], shown["same_tokens"]) == (2, True, True)
