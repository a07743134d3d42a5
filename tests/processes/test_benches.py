"""Every bench for developers once, over the smallest possible model."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO
from typing import Any

import pytest

pytestmark = pytest.mark.nightly


def test_the_command_runs_the_hop_bench() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tui.cli.main", "bench", "hop", "--rounds", "2", "--hops", "50", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["ratios"]["sealed_over_raw_cpu"] > 0
    assert len(shown["rounds"]) == 2


def test_the_bench_of_copies_runs() -> None:
    command = [sys.executable, "-m", "tui.cli.main", "bench", "copy", "--rounds", "1", "--layers", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["ratios"]["sealed_over_plain"] > 0


def test_the_bench_of_reduces_runs() -> None:
    tiny = ["--hidden", "64", "--layers", "2", "--tokens", "3", "--rounds", "2", "--json"]
    command = [sys.executable, "-m", "tui.cli.main", "bench", "comms", *tiny]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["ratios"]["sealed_over_plain_reduce"] > 0
    assert (shown["reduces_a_token"], shown["bytes_a_token"]) == (4, 4 * 64 * 2)
    assert all(shown["ms_a_token"][way] > shown["ms_a_reduce"][way] > 0 for way in ("sealed", "plain"))


def run_tiny(bench: str, *options: str, hidden: int = 64, layers: int = 2) -> dict[str, Any]:
    """Run a bench in this process over a tiny model, twice; returns its JSON."""
    tiny = ["--json", "--runs", "2", "--layers", str(layers), "--hidden", str(hidden), "--dtype", "float32"]
    with redirect_stdout(StringIO()) as said:
        assert import_module(f"tests.benches.{bench}").main([*tiny, *options]) == 0
    shown: dict[str, Any] = json.loads(said.getvalue())
    assert all(ratio > 0 for ratio in shown["ratios"].values())
    assert shown["sizes"] == {"layers": layers, "hidden": hidden, "dtype": "float32"}
    assert len(shown["runs"]) == 2
    return shown


def test_the_bench_of_lanes_runs() -> None:
    shown = run_tiny("batch", "--tokens", "5")
    assert set(shown["ratios"]) == {"eight_rows_over_one", "lanes_over_one_lane"}
    assert set(shown["ways"]) == {"rows_1", "rows_2", "rows_4", "rows_8", "rows_8_one_lane"}
    assert shown["same_tokens"] is True
    assert all(len(lines) == 2 for lines in shown["bars"].values())


def test_the_bench_of_windows_runs_and_its_logits_are_those_of_mlx_lm() -> None:
    shown = run_tiny("prefill", "--prompt", "40", "--chunks", "8")
    assert set(shown["ratios"]) == {"windowed_over_window_1", "windowed_over_solo"}
    assert [(turn["chunk"], turn["window"]) for turn in shown["ways"]] == [(8, 1), (8, 2), (8, 3)]
    assert shown["same_logits"] is True
    assert shown["solo_difference"] < 1e-5
    assert all(len(lines) == 2 for lines in shown["bars"].values())


def test_the_bench_of_topologies_runs_and_each_mac_sees_what_its_plan_says() -> None:
    shown = run_tiny("topology", "--tokens", "5", "--prompt", "80")
    others = {"forward", "reverse", *(f"private as {wire}" for wire in ("float32", "bfloat16", "int8"))}
    assert set(shown["ratios"]) == {f"{way}_over_private" for way in others}
    assert [len(shown["sights"][way]) for way in ("private", "forward", "reverse", "single")] == [2, 2, 2, 1]
    assert shown["sights"]["private"][1] == ["activations"]
    assert shown["as_planned"] is True
    assert shown["same_tokens"] is True
    assert shown["ways"]["single"]["wire_bytes"] == 0 < shown["ways"]["reverse"]["wire_bytes"]


def test_the_bench_of_ranks_runs() -> None:
    shown = run_tiny("tensor", "--tokens", "5", hidden=128)
    assert set(shown["ratios"]) == {"tensor_over_solo", "tensor_over_pipeline"}
    assert shown["same_tokens"] is True


def test_the_bench_against_a_pipeline_in_the_open_runs_and_both_say_the_same() -> None:
    shown = run_tiny("plain", "--tokens", "5")
    assert shown["ratios"]["two_stages_over_plain"] > 0
    assert shown["same_tokens"] is True


def test_the_bench_of_the_loop_alone_runs_and_it_answers_as_mlx_lm() -> None:
    shown = run_tiny("loop", "--tokens", "5")
    assert set(shown["ratios"]) == {"loop_over_solo", "loop_over_solo_processor"}
    assert shown["same_tokens"] is True


def test_the_bench_of_tracing_runs_and_a_traced_answer_is_the_same() -> None:
    shown = run_tiny("trace", "--tokens", "5")
    assert set(shown["ratios"]) == set(shown["between"]) == {"traced_over_untraced", "traced_over_untraced_wall"}
    assert shown["noted_a_token"] >= 3  # the head leaves and returns, the other Mac is there between
    assert shown["same_tokens"] is True


def test_the_bench_against_mlx_lm_and_its_server_runs_and_all_say_the_same() -> None:
    shown = run_tiny("compare", "--tokens", "5", "--words", "12")
    assert set(shown["ratios"]) == {"ring_over_solo", "ring_over_server", "ring_over_pipeline"}
    assert list(shown["sides"]) == ["solo", "server", "pipeline", "ring"]
    assert all(shown["same_tokens"].values())
    assert all(side["first_s"] > 0 < side["peak_mib"] for side in shown["sides"].values())


def test_the_bench_of_reuse_runs_and_a_second_turn_reads_what_is_new() -> None:
    shown = run_tiny("reuse", "--prompt", "40", "--answer", "6", "--new", "12")
    assert {name for name in shown["ratios"] if name.endswith("tokens")} == set(shown["reach"])
    read = {kind: [turn["prefilled"] for turn in turns.values()] for kind, turns in shown["turns"].items()}
    assert read == {"trimmed": [40, 13, 18, 20], "whole": [40, 13, 19, 40]}
    assert shown["same_tokens"] is True


def test_the_bench_of_a_mac_beside_runs_and_answers_are_those_of_the_ring() -> None:
    shown = run_tiny("beside", "--prompt", "40", "--times", "2")
    assert set(shown["ratios"]) == set(shown["reach"]) == {"ring_over_beside"}
    assert shown["same_tokens"] is True


def test_the_bench_of_guesses_runs_and_answers_are_those_of_mlx_lm() -> None:
    shown = run_tiny("speculate", "--tokens", "40")
    assert set(shown["ratios"]) == {
        "speculative_over_plain",
        "speculative_over_solo",
        "wandering_speculative_over_plain",
    }
    assert shown["texts"]["repeating"]["acceptance"] == 1
    assert all(text["same_tokens"] for text in shown["texts"].values())


def test_the_bench_of_drafts_runs_and_guesses_change_no_answer() -> None:
    shown = run_tiny("speculate", "--draft", "--tokens", "40", layers=3)
    assert set(shown["ratios"]) == set(shown["reach"]) == {"drafted_over_plain", "wandering_drafted_over_plain"}
    assert all(text["same_tokens"] for text in shown["texts"].values())
    assert shown["texts"]["wandering"]["accepted"] == 0


def test_the_bench_of_shapes_runs_and_forms_are_the_same_at_once_and_one_by_one() -> None:
    shown = run_tiny("schema", "--tokens", "8")
    assert set(shown["ratios"]) == set(shown["reach"]) == {"constrained_over_free", "forced_over_plain"}
    assert shown["same_tokens"] is True
    assert shown["forced"] > shown["form_tokens"] / 2
