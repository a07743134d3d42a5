"""Rows in the node's mirror: contiguous, within its memory, shared, and deleted with their conversation."""

from __future__ import annotations

import pytest

from core.node.answers.kv_mirror import GIVEN_BYTES, Mirror
from core.worker.messages import MirrorSpan

TOKENS = list(range(100, 200))


def a_span(start: int, stop: int, size: int = 10) -> MirrorSpan:
    return MirrorSpan(start, stop, bytes(size))


@pytest.fixture
def mirror() -> Mirror:
    """A mirror with 40 tokens of one row."""
    mirror = Mirror()
    mirror.limit = 100
    assert mirror.begin("a", TOKENS) == 0
    assert mirror.keep("a", a_span(0, 30), TOKENS)
    assert mirror.keep("a", a_span(30, 40), TOKENS)
    return mirror


def test_a_row_is_handed_over_again_with_what_is_there(mirror: Mirror) -> None:
    assert mirror.begin("a", TOKENS) == 40
    assert [(span.start, span.stop) for span in mirror.spans("a", 0)] == [(0, 30), (30, 40)]
    assert [(span.start, span.stop) for span in mirror.spans("a", 1)] == [(30, 40)]
    assert mirror.spans("a", 2) == mirror.spans("b", 0) == ()


@pytest.mark.parametrize(
    ("span", "why"),
    [
        (a_span(41, 50), "there is a gap"),
        (a_span(30, 50), "it was there"),
        (a_span(40, 101), "of tokens that nobody knows"),
        (a_span(40, 50, 81), "it is too much"),
    ],
)
def test_what_does_not_follow_is_not_kept(mirror: Mirror, span: MirrorSpan, why: str) -> None:
    assert not mirror.keep("a", span, TOKENS), why
    assert mirror.begin("a", TOKENS) == 40


@pytest.mark.parametrize(
    ("beginning", "mirrored"),
    [
        (TOKENS, 40),
        (TOKENS[:41], 40),
        (TOKENS[:40], 30),  # the last token is always read
        ([*TOKENS[:35], 1, 2, 3, 4, 5, 6, 7], 30),
        ([1, *TOKENS[1:]], 0),
    ],
)
def test_the_next_turn_begins_with_the_spans_that_it_shares(
    mirror: Mirror, beginning: list[int], mirrored: int
) -> None:
    mirror.end("a")
    assert mirror.begin("b", beginning) == mirrored
    assert mirror.nbytes == 20
    rest = a_span(mirrored, mirrored + 1)
    assert mirror.keep("b", rest, [*beginning, 1, 2])
    assert mirror.spans("a", 0)[-1].stop == 40  # it did not change with the other


def test_what_ended_gives_way_to_what_runs(mirror: Mirror) -> None:
    mirror.end("a")
    mirror.begin("b", [1, 2, 3, 4])
    assert mirror.keep("b", a_span(0, 2, 95), [1, 2, 3, 4])
    assert mirror.begin("c", TOKENS) == 0
    assert mirror.nbytes == 95


@pytest.mark.promise("P21")
def test_only_the_conversation_that_ended_last_is_kept(mirror: Mirror) -> None:
    mirror.begin("b", [1, 2, 3, 4])
    mirror.keep("b", a_span(0, 2), [1, 2, 3, 4])
    mirror.end("a")
    mirror.end("b")
    assert mirror.nbytes == 10
    assert mirror.begin("c", [1, 2, 3, 4]) == 2
    mirror.forget()
    assert mirror.nbytes == 0


def test_spans_are_given_in_messages_of_some_size() -> None:
    mirror = Mirror()
    mirror.limit = 10 * GIVEN_BYTES
    mirror.begin("a", TOKENS)
    for start in range(0, 50, 10):
        mirror.keep("a", a_span(start, start + 10, GIVEN_BYTES // 2), TOKENS)
    assert [len(mirror.spans("a", behind)) for behind in (0, 2, 4)] == [2, 2, 1]


def test_windows_are_dropped_where_no_row_goes_on_that_needs_them() -> None:
    mirror = Mirror()
    mirror.limit = 1000
    mirror.begin("a", TOKENS)
    for start, needs in ((0, 0), (10, 3), (20, 13), (30, None)):
        assert mirror.keep("a", MirrorSpan(start, start + 10, bytes(1), bytes(100), needs), TOKENS)
    assert [len(span.window) for span in mirror.spans("a", 0)] == [0, 100, 100, 100]
    assert mirror.nbytes == 304
    assert mirror.begin("a", TOKENS) == 30, "the last span is of no use alone"
    assert mirror.begin("b", TOKENS[:25]) == 0, "behind the second one a row would need the first"
    assert mirror.begin("c", TOKENS[:35]) == 30


def test_only_the_newest_states_are_kept_and_all_parts_of_them() -> None:
    mirror = Mirror()
    mirror.limit = 1000
    mirror.begin("a", TOKENS)

    def kept(start: int, stop: int, size: int, needs: int | None = None) -> bool:
        return mirror.keep("a", MirrorSpan(start, stop, bytes(size), needs=needs), TOKENS)

    assert kept(0, 30, 1)
    assert mirror.begin("b", TOKENS) == 0, "no row can go on without its states"
    assert kept(30, 30, 100)
    assert kept(30, 30, 100, needs=0)
    assert kept(30, 60, 1)
    assert kept(60, 60, 100)
    assert mirror.begin("b", TOKENS) == 30, "a part of the states behind 60 is missing"
    assert [len(span.data) for span in mirror.spans("b", 0)] == [1, 100, 100]
    assert kept(60, 60, 100, needs=0)
    assert mirror.begin("b", TOKENS) == 60
    assert [(span.stop, len(span.data)) for span in mirror.spans("b", 0)] == [(30, 1), (60, 1), (60, 100), (60, 100)]
    assert not kept(60, 60, 10_000)
    assert not kept(60, 60, 1, needs=0), "behind one that had no room nothing is kept"


def test_a_plan_without_a_mirror_keeps_nothing() -> None:
    mirror = Mirror()
    assert mirror.begin("a", TOKENS) == 0
    assert not mirror.keep("a", a_span(0, 30), TOKENS)
