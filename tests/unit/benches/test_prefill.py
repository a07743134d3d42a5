"""Summary and text of the bench of windows; tests/processes/test_benches.py runs it."""

from __future__ import annotations

import pytest

from core.worker.messages import TraceSpan
from tests.benches.made_models import ModelSize
from tests.benches.prefill import (
    WINDOWS,
    PrefillAlone,
    PrefillPlayed,
    PrefillRun,
    PrefillTrace,
    TopLogprobs,
    describe,
    summary,
)
from tests.benches.stage_timeline import Activity

SIZES = ModelSize(2, 64, "bfloat16")
TOP = {0: -0.5, 2: -1.0}
LOGPROBS = [-0.5, -9.0, -1.0]


def a_turn(chunk: int, window: int, seconds: float, top_logprobs: TopLogprobs = TOP) -> PrefillPlayed:
    spans = [TraceSpan(number, 1, "chunk", number * 0.1, number * 0.1 + 0.05) for number in range(4)]
    turn = PrefillRun(chunk=chunk, window=window, seconds=seconds, activity=Activity(1, [0.5, 0.5], 0))
    return PrefillPlayed(turn, top_logprobs, [spans, spans])


def a_run(windowed_s: float, top_logprobs: TopLogprobs = TOP) -> PrefillTrace:
    """Two chunk sizes; a window of one takes 10 s, and so does mlx_lm."""
    seconds = {1: 10.0, 2: 8.0, 3: windowed_s}
    ways = [a_turn(64, window, seconds[window], top_logprobs if window == 3 else TOP) for window in WINDOWS]
    return PrefillTrace(
        [*ways, *(a_turn(128, window, 1.0, {1: -2.0}) for window in WINDOWS)], PrefillAlone(10.0, LOGPROBS)
    )


def test_ratios_are_of_the_first_chunk_size_and_medians_over_runs() -> None:
    result = summary([a_run(5.0), a_run(4.0), a_run(20.0)], 2048, SIZES)
    assert result.ratios == {"windowed_over_window_1": 2.0, "windowed_over_solo": 2.0}
    assert result.reach["windowed_over_window_1"].reached
    assert [(turn.chunk, turn.window) for turn in result.ways] == [(c, w) for c in (64, 128) for w in WINDOWS]
    assert result.ways[2].seconds == 5.0


@pytest.mark.parametrize(
    ("top_logprobs", "is_same", "difference"),
    [
        pytest.param(TOP, True, 0.0, id="same"),
        pytest.param({0: -0.5, 2: -1.25}, False, 0.25, id="other probability"),
        pytest.param({0: -0.5, 1: -1.0}, False, 8.0, id="other token"),
    ],
)
def test_logits_that_differ_are_told(top_logprobs: TopLogprobs, is_same: bool, difference: float) -> None:
    result = summary([a_run(5.0), a_run(5.0, top_logprobs)], 2048, SIZES)
    assert (result.same_logits, result.solo_difference) == (is_same, difference)
    assert ("DIFFER" in describe(result)) is not is_same


@pytest.mark.parametrize(("prompt", "counts"), [(2048, True), (64 * 510, False)])
def test_it_does_not_count_where_a_chunk_takes_no_time(prompt: int, counts: bool) -> None:
    assert summary([a_run(5.0)], prompt, SIZES).reach["windowed_over_window_1"].counts is counts


def test_the_text_has_every_way_and_its_bars() -> None:
    text = describe(summary([a_run(5.0)], 2048, SIZES))
    assert text.count("stage 2") == len(WINDOWS)
    assert all(f"window {window}" in text for window in WINDOWS)
    assert str(SIZES) in text
    assert "2048 tokens" in text
    assert "target at least 1.8: reached" in text
