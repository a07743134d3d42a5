"""Lanes: which rows share one, when rows join and leave, and when a lane splits."""

from __future__ import annotations

from itertools import count
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.engine.lanes import Lane, join, leave, split
from core.engine.prefix_cache import CachedPrefix
from core.engine.ring_work import Chunk, Compose, Copy, Drop, Extend, Extract, Keep, Merge, New, Op, Step
from tests.support.simulated import alone
from tests.support.simulated_head import Head, ask, ops_of, running, steps_of


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_one_user_alone_stays_on_plain_caches(stages: int) -> None:
    head = Head(stages, chunk=2)
    head.submit(asked := ask("a", prompt=6, tokens=3))
    chunks = [
        Chunk(("a",), 1, (0,), (asked.tokens[:2],)),
        Chunk(("a",), 1, (2,), (asked.tokens[2:4],)),
        Chunk(("a",), 1, (4,), (asked.tokens[4:5],)),
    ]
    fed = [asked.tokens[-1], *alone(asked, stages)[:2]]
    steps = [Step(1, ("a",), (token,)) for token in fed]
    assert head.finish() == [Compose((New(1),)), *chunks, *steps]
    assert head.reasons == {"a": "length"}
    assert head.scheduler.parked == (CachedPrefix(1, (*asked.tokens, *fed[1:])),)


def test_rows_open_lanes_first_then_join_the_smallest() -> None:
    head = running(2, "ab")
    assert len(head.scheduler.in_flight) == 0, "both steps came round"
    assert head.scheduler.running == 2
    head.submit(ask("c"))
    assert ops_of(head.round()) == [New(3), Merge(4, (1, 3))]
    head.submit(ask("d"))
    assert ops_of(head.round()) == [New(5), Merge(6, (2, 5))]
    head.submit(ask("e"))
    head.submit(ask("f"))
    head.submit(ask("g"))
    ops = ops_of(head.round())
    assert ops == [New(7), New(8), New(9), Merge(10, (7, 9)), Extend(4, 10), Merge(11, (8,)), Extend(6, 11)]


def test_rows_that_come_together_join_in_one_composition() -> None:
    head = Head(1)
    for name in "abc":
        head.submit(ask(name))
    assert ops_of(head.round()) == [New(1), New(2), New(3), Merge(4, (1, 2, 3))]
    assert steps_of(head.round())[0].requests == ("a", "b", "c")


def test_a_row_whose_lane_is_under_way_joins_when_it_is_back() -> None:
    head = running(1, "a")
    step = head.turn(0.0)
    assert isinstance(step, Step)
    head.submit(ask("b"))
    assert head.turn(0.0) == Compose((New(2),)), "its lane is under way"
    assert head.turn(0.0) is None
    head.round()
    assert [step.requests for step in steps_of(head.round())] == [("a", "b")]


@pytest.mark.parametrize("stages", [1, 3])
def test_rows_that_may_not_share_a_lane_have_one_each(stages: int) -> None:
    head = running(stages, "abcde", batched=False)
    assert [step.requests for step in steps_of(head.round())] == [("a",), ("b",), ("c",), ("d",), ("e",)]
    assert ops_of(head.finish()) == [], "all of them are parked as they are"
    assert not head.kinds["Merge"]


def test_lanes_step_by_turns_where_steps_come_back_at_once() -> None:
    head = running(1, "abc", batched=False)
    steps = []
    for _ in range(6):
        steps.append(head.turn(0.0))
        head.carry()
    assert [step.requests[0] for step in steps if isinstance(step, Step)] == ["a", "b", "c"] * 2


@pytest.mark.parametrize("lanes", [1, 3])
def test_there_may_be_another_number_of_lanes_than_of_stages(lanes: int) -> None:
    assert len(steps_of(running(2, "abcd", lanes=lanes).round())) == lanes


def test_a_row_that_ends_leaves_its_lane_and_the_others_stay() -> None:
    head = running(1, "abc")
    head.cancel("b")
    assert ops_of(head.round()) == [Keep(3, (0, 2))]
    assert [step.requests for step in steps_of(head.round())] == [("a", "c")]


def test_what_is_done_with_is_dropped_with_the_next_composition_or_when_nothing_else_is_left() -> None:
    head = running(2, "ab")
    head.cancel("a")
    assert ops_of(head.round()) == [], "b goes on, and waits for nothing"
    head.submit(ask("c"))
    assert ops_of(head.round()) == [Drop(1), New(3)]
    head.cancel("b")
    head.cancel("c")
    assert not head.scheduler.idle
    assert head.round() == [Compose((Drop(2), Drop(3)))]
    assert head.scheduler.idle


def test_a_lane_that_is_missing_is_split_off_the_largest() -> None:
    head = running(2, "abcdef")
    before = {step.handle: step.requests for step in steps_of(head.round())}
    assert before == {4: ("a", "c", "e"), 6: ("b", "d", "f")}
    for name in "ace":
        head.cancel(name)
    work = head.round()
    left = [Extract(11, 4, 0), Keep(4, (1, 2)), Extract(12, 4, 0), Keep(4, (1,)), Drop(4)]
    assert ops_of(work) == [*left, Copy(13, 6), Keep(6, (0, 1)), Keep(13, (2,))], "e holds too little to be parked"
    assert {step.requests for step in steps_of(work)} == {("b", "d"), ("f",)}


def test_lanes_differ_by_one_row_at_most_as_rows_come() -> None:
    head = Head(3, rows=64)
    for number in range(40):
        head.submit(ask(chr(ord("a") + number)))
        head.round()
        sizes = sorted(len(step.tokens) for step in steps_of(head.round()))
        assert sum(sizes) == number + 1
        assert sizes[-1] - sizes[0] <= 1


@pytest.mark.slow
@given(st.integers(1, 4), st.integers(1, 20), st.randoms(use_true_random=False))
def test_with_as_many_rows_as_stages_every_stage_has_a_lane(stages: int, rows: int, random: Random) -> None:
    """Rows end in any order, and the number of lanes in flight stays that of the stages, or of the rows if fewer."""
    names = [chr(ord("a") + number) for number in range(rows)]
    head = running(stages, "".join(names), rows=64, queue=64)
    while names:
        for name in random.sample(names, random.randint(1, len(names))):
            names.remove(name)
            head.cancel(name)
        lanes = [step.requests for step in steps_of(head.round())]
        assert len(lanes) == min(stages, len(names))
        assert sorted(row for lane in lanes for row in lane) == names


@given(st.data())
def test_ops_leave_every_stage_with_the_rows_of_the_lanes(data: st.DataObject) -> None:
    most = data.draw(st.integers(1, 5))
    names = iter("abcdefghijklmnopqrstuvwxyz")
    lanes = [
        Lane(number, tuple(next(names) for _ in range(size)), batched=size > 1, flying=data.draw(st.integers(0, 2)))
        for number, size in enumerate(data.draw(st.lists(st.integers(1, 5), max_size=4)))
    ]
    ready = [Lane(10 + number, (next(names),)) for number in range(data.draw(st.integers(0, 4)))]
    rows = [row for lane in lanes for row in lane.rows]
    gone = data.draw(st.sets(st.sampled_from(rows))) if rows else set()
    held = {lane.handle: list(lane.rows) for lane in (*lanes, *ready)}
    handles = count(100)

    kept = data.draw(st.sets(st.sampled_from(sorted(gone)))) if gone else set()
    left = leave(lanes, gone, kept, handles)
    joined = join([lane for lane in left.lanes if lane.rows], ready, gone, most, handles, lambda _: True)
    halved = split(joined.lanes, gone, most, handles)
    for op in (*left.ops, *joined.ops, *halved.ops):
        carry_out(op, held)

    after = halved.lanes
    assert all(held[lane.handle] == list(lane.rows) for lane in after)
    assert all(lane in after for lane in lanes if lane.flying), "who is under way stays as it is"
    assert not any(gone & set(lane.rows) for lane in after if not lane.flying)
    assert left.apart.keys() == kept - {row for lane in lanes if lane.flying for row in lane.rows}
    assert all(held[handle] == [row] for row, handle in left.apart.items())
    staying = [row for row in rows if row not in gone]
    inside = [row for lane in after for row in lane.rows if row not in gone]
    assert sorted(inside) == sorted(staying + [row.rows[0] for row in ready if row.rows[0] in inside])
    assert sum(lane.size(gone) > 0 for lane in after) <= max(most, len(lanes))


def carry_out(op: Op, held: dict[int, list[str]]) -> None:
    match op:
        case Merge(into, rows):
            held[into] = [held.pop(row)[0] for row in rows]
        case Extend(into, more):
            held[into] += held.pop(more)
        case Keep(handle, rows):
            held[handle] = [held[handle][row] for row in rows]
        case Copy(into, of):
            held[into] = list(held[of])
        case Extract(into, of, row):
            held[into] = [held[of][row]]
        case _:
            raise AssertionError(op)
