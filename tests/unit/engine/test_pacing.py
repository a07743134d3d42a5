"""Chunk and window follow the measurements of the hops, and nothing else moves them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.engine.pacing import (
    LEAST_CHUNK,
    MOST_WINDOW,
    Pace,
    RingFigures,
    chunk_behind,
    chunk_in_time,
    planned_pace,
)
from core.settings import FAR_BACK

TOKEN_S = 0.001  # a stage computes a token in a millisecond


def seen(
    pace: Pace, *, compute: tuple[float, ...] = (TOKEN_S, TOKEN_S), wire_s: float = 0.0, delay_s: float = 0.0
) -> Pace:
    """`pace` after one of its chunks: seconds a token on each stage and on the slowest wire, and a delay each round."""
    n = pace.chunk
    round_s = sum(compute) * n + wire_s * n + delay_s
    return pace.after(RingFigures(n, round_s, tuple(s * n for s in compute), (wire_s * n, 0.0)))


def settled(pace: Pace, *, wire_s: float = 0.0, delay_s: float = 0.0) -> Pace:
    for _ in range(10):
        pace = seen(pace, wire_s=wire_s, delay_s=delay_s)
    return pace


@pytest.mark.parametrize(
    ("token_s", "sizes"),
    [
        pytest.param(0.29, (64, 64), id="a 4-bit model on an old CPU"),
        pytest.param(0.05, (512, 512), id="fast enough"),
        pytest.param(9.0, (LEAST_CHUNK, LEAST_CHUNK), id="not below 32"),
        pytest.param(0.014, (512, 512), id="a large model"),
    ],
)
def test_a_chunk_takes_half_a_minute_at_most(token_s: float, sizes: tuple[int, int]) -> None:
    once = chunk_in_time(512, 512, token_s)
    assert (once, chunk_in_time(once, 512, token_s)) == sizes


def test_chunks_grow_again_as_soon_as_the_mac_is_quick() -> None:
    chunk = LEAST_CHUNK
    for _ in range(10):
        chunk = chunk_in_time(chunk, 512, 0.001)
    assert chunk == 512
    assert chunk_in_time(256, 512, 0.014) == 512  # few tokens of a proof had shown less than the Mac can do


def test_it_begins_as_planned_with_a_chunk_for_every_stage() -> None:
    assert (planned_pace(512, 2, 3).chunk, planned_pace(512, 2, 3).window) == (512, 3)
    assert planned_pace(512, 5, 2).window == 5


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("window", [2, 5])
def test_on_loopback_nothing_changes(stages: int, window: int) -> None:
    planned = planned_pace(512, window, stages)
    for share in (1.0, 0.3):
        compute = (TOKEN_S, *[TOKEN_S * share] * (stages - 1))
        assert seen(planned, compute=compute, wire_s=TOKEN_S / 500, delay_s=0.002) == planned


@pytest.mark.parametrize(
    ("wire_s", "chunk"),
    [
        pytest.param(0.25 / 512, 512, id="just fast enough"),
        pytest.param(0.26 / 512, 256, id="a little slow"),
        pytest.param(1 / 512, 128, id="a second a chunk"),
        pytest.param(2 / 512, 64, id="slow Wi-Fi"),
        pytest.param(60 / 512, LEAST_CHUNK, id="not below 32"),
    ],
)
def test_a_chunk_takes_a_quarter_of_a_second_on_the_slowest_wire_at_most(wire_s: float, chunk: int) -> None:
    pace = seen(planned_pace(512, 2, 2), wire_s=wire_s)
    assert pace.chunk == chunk
    assert settled(pace, wire_s=wire_s).chunk == chunk


@pytest.mark.parametrize(("planned", "least"), [(512, 32), (100, 32), (20, 20)])
def test_a_hop_that_is_fast_again_gets_the_planned_chunk_back(planned: int, least: int) -> None:
    slow = seen(planned_pace(planned, 2, 2), wire_s=1.0)
    assert slow.chunk == least
    assert seen(slow).chunk == min(2 * least, planned), "one step at a time"
    assert settled(slow).chunk == planned


def test_a_chunk_that_was_halved_grows_only_where_it_would_be_well_below_the_bound() -> None:
    halved = seen(planned_pace(512, 2, 2), wire_s=0.26 / 512)
    assert seen(halved, wire_s=0.16 / 512) == halved
    assert seen(halved, wire_s=0.14 / 512).chunk == 512


@pytest.mark.parametrize(
    ("delay_s", "window"),
    [
        pytest.param(0.0, 2, id="no delay"),
        pytest.param(0.1, 2, id="a fifth of a chunk"),
        pytest.param(0.512, 3, id="a chunk"),
        pytest.param(0.6, 3, id="a little more than a chunk"),
        pytest.param(1.0, 4, id="two chunks"),
        pytest.param(9.0, MOST_WINDOW, id="not more than 8"),
    ],
)
def test_the_window_keeps_the_busiest_stage_busy_over_the_round(delay_s: float, window: int) -> None:
    pace = seen(planned_pace(512, 2, 2), delay_s=delay_s)
    assert pace.window == window
    assert seen(pace) == planned_pace(512, 2, 2), "and back without the delay"


def test_a_wire_that_is_busier_than_any_stage_counts_as_one() -> None:
    pace = seen(planned_pace(64, 2, 2), wire_s=3 * TOKEN_S)
    assert pace.window == 2, "(1 + 1 + 3) / 3: more chunks would only queue for the wire"


def test_a_stage_too_fast_to_measure_does_no_harm() -> None:
    planned = planned_pace(512, 2, 2)
    assert planned.after(RingFigures(512, 1.0, (0.0, 0.0), (0.0, 0.0))) == planned
    assert planned.after(RingFigures(512, 1.0, (0.0, 5e-324), (0.0, 0.0))).window == MOST_WINDOW


def test_more_stages_than_8_have_a_chunk_each() -> None:
    planned = planned_pace(512, 2, 10)
    assert seen(planned, compute=(TOKEN_S,) * 10, delay_s=99.0).window == 10


@given(st.floats(0.0, 0.01), st.lists(st.floats(-0.1, 0.1), min_size=20, max_size=20))
def test_a_tenth_of_noise_changes_the_chunk_once_at_most(wire_s: float, noise: list[float]) -> None:
    pace = settled(planned_pace(512, 2, 2), wire_s=wire_s)
    chunks = [(pace := seen(pace, wire_s=wire_s * (1 + part))).chunk for part in noise]
    assert sum(one != other for one, other in pairwise(chunks)) <= 1


@given(st.floats(0.0, 0.7), st.lists(st.floats(-0.07, 0.07), min_size=20, max_size=20))
def test_a_little_noise_changes_the_window_once_at_most(rounds: float, noise: list[float]) -> None:
    """`rounds`: the delay in units of a chunk's time on the busiest stage; the noise too."""
    chunk_s = 512 * TOKEN_S
    pace = settled(planned_pace(512, 2, 2), delay_s=rounds * chunk_s)
    windows = [(pace := seen(pace, delay_s=(rounds + part) * chunk_s)).window for part in noise]
    assert sum(one != other for one, other in pairwise(windows)) <= 1


@given(
    st.integers(1, 2048),
    st.integers(1, 8),
    st.integers(1, 12),
    st.lists(st.tuples(st.floats(0, 1e3), st.floats(0, 1e3), st.floats(0, 1e3)), max_size=8),
)
def test_it_stays_within_its_bounds(chunk: int, window: int, stages: int, figures: list[tuple[float, ...]]) -> None:
    pace = planned_pace(chunk, window, stages)
    for round_s, compute_s, send_s in figures:
        pace = pace.after(RingFigures(pace.chunk, round_s, (compute_s,) * stages, (send_s,) * stages))
        assert min(chunk, LEAST_CHUNK) <= pace.chunk <= chunk
        assert max(window, stages) <= pace.window <= max(window, stages, MOST_WINDOW)


@given(st.integers(0, 1 << 20), st.integers(1, 4096))
def test_a_chunk_is_smaller_where_each_token_looks_far_back(position: int, chunk: int) -> None:
    size = chunk_behind(position, chunk)
    assert min(chunk, LEAST_CHUNK) <= size <= chunk
    assert size == chunk or position > FAR_BACK
    assert size <= LEAST_CHUNK or size * position <= chunk * max(position, FAR_BACK)
    assert chunk_behind(2 * FAR_BACK, 512) == 256
