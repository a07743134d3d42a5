"""Timelines of a ring's spans, compared with counting moments one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.worker.messages import SpanKind, TraceSpan
from tests.benches.stage_timeline import (
    IDLE,
    SHADES,
    Activity,
    Block,
    activity,
    bars,
    end_s,
    labelled,
    median_activity,
    middle,
    timeline,
)

LENGTH = 24


def a_span(start: float, end: float, handle: int = 7, step: int = 1, kind: SpanKind = "step") -> TraceSpan:
    return TraceSpan(step, handle, kind, start, end)


@st.composite
def stages(draw: st.DrawFn) -> list[list[Block]]:
    """Blocks between whole seconds, in order, on one to three stages."""
    rows = []
    for _ in range(draw(st.integers(1, 3))):
        edges = sorted(draw(st.sets(st.integers(0, LENGTH), max_size=12)))
        pairs = zip(edges[::2], edges[1::2], strict=False)
        rows.append([Block(start, end, draw(st.integers(0, 5))) for start, end in pairs])
    return rows


@given(stages())
def test_shares_and_bars_are_what_counting_every_second_gives(rows: list[list[Block]]) -> None:
    seconds = [[any(b.start_s <= at < b.end_s for b in row) for at in range(LENGTH)] for row in rows]
    found = activity(rows)
    assert found.seconds == end_s(rows) <= LENGTH
    for row, share in zip(seconds, found.busy, strict=True):
        assert share * found.seconds == pytest.approx(sum(row))
    assert found.together * found.seconds == pytest.approx(sum(all(at) for at in zip(*seconds, strict=True)))
    lines = bars(rows, LENGTH, LENGTH)
    assert [[shade != IDLE for shade in line] for line in lines] == seconds


def test_a_lane_keeps_its_number_on_every_stage_and_so_does_a_chunk() -> None:
    traces = [
        [a_span(5, 6, handle=40, step=8), a_span(6, 7, handle=12, step=9)],
        [a_span(6, 8, handle=40, step=8), a_span(8, 9, handle=12, step=9)],
    ]
    assert timeline(traces, "handle") == [[(0, 1, 1), (1, 2, 0)], [(1, 3, 1), (3, 4, 0)]]
    assert timeline(traces, "step") == [[(0, 1, 0), (1, 2, 1)], [(1, 3, 0), (3, 4, 1)]]


def test_compositions_are_no_part_of_it() -> None:
    traces = [[a_span(1, 2, kind="compose"), a_span(3, 4)], [a_span(4, 6), a_span(9, 10, kind="compose")]]
    assert timeline(traces, "step") == [[(0, 1, 0)], [(1, 3, 0)]]


def test_the_middle_begins_with_the_first_stages_work_and_is_cut_at_both_ends() -> None:
    head = [a_span(at, at + 2, step=at) for at in range(0, 40, 4)]
    head.insert(6, a_span(19.5, 19.6, kind="output"))  # starts no block
    tail = [a_span(at + 1, at + 5, step=at) for at in range(0, 40, 4)]
    piece = middle([head, tail], 6)
    assert [[(s.start_s, s.end_s) for s in stage] for stage in piece] == [
        [(20, 22), (24, 26)],
        [(20, 21), (21, 25), (25, 26)],
    ]
    assert end_s(timeline(piece, "step")) == 6


@pytest.mark.parametrize("traces", [pytest.param([[], []], id="two"), pytest.param([[]], id="one")])
def test_stages_that_did_nothing_are_idle(traces: list[list[TraceSpan]]) -> None:
    rows = timeline(middle(traces, 1.0), "step")
    assert activity(rows) == Activity(0.0, [0.0] * len(traces), 0.0)
    assert bars(rows, 1.0, 3) == [IDLE * 3] * len(traces)


def test_each_number_has_a_shade_until_they_begin_anew() -> None:
    row = [Block(at, at + 1, at) for at in range(len(SHADES) + 1)]
    assert bars([row], len(row), len(row)) == [SHADES + SHADES[0]]


def test_medians_go_figure_by_figure() -> None:
    activities = [Activity(1, [0.5, 0.9], 0.1), Activity(9, [0.7, 0.1], 0.3), Activity(2, [0.6, 0.2], 0.2)]
    assert median_activity(activities) == Activity(2, [0.6, 0.2], 0.2)


def test_people_read_the_name_once_and_count_stages_from_one() -> None:
    assert [line.split() for line in labelled("1 row", ["█·", "·█"])] == [
        ["1", "row", "stage", "1", "█·"],
        ["stage", "2", "·█"],
    ]
