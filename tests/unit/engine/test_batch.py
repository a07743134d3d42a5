"""The report of rows and lanes equals the scheduler's state, at any moment of any schedule."""

from __future__ import annotations

import pytest

from core.engine.prefix_cache import tokens_of
from core.events import Batch, BatchLane, BatchRow
from tests.support.schedules import Schedule
from tests.support.simulated_head import Head, ask, running


class CheckedSchedule(Schedule):
    """Checks the report after every event."""

    seen: int = 0

    def _something(self) -> None:
        super()._something()
        check(self.head)
        self.seen += bool(self.head.scheduler.batch.rows)


def check(head: Head) -> None:
    scheduler = head.scheduler
    batch = scheduler.batch
    assert len({row.request_id for row in batch.rows}) == len(batch.rows)
    assert batch.rows == (*batch.running, *batch.queue)
    assert (len(batch.running), len(batch.queue)) == (scheduler.running, scheduler.waiting)
    assert all(scheduler.alive(row.request_id) for row in batch.running)
    assert batch.in_flight == len(scheduler.in_flight)
    assert batch.used_tokens <= batch.reserved_tokens
    assert batch.parked_tokens == sum(len(parked.tokens) for parked in scheduler.parked)
    for number, lane in enumerate(batch.lanes, 1):
        assert lane.rows == sum(row.lane == number for row in batch.rows)
    for row in batch.rows:
        assert (row.state == "writing") is (row.lane is not None)
        assert row.reused <= row.read <= row.prompt_tokens + row.written
        assert row.written == len(head.answers[row.request_id])


@pytest.mark.slow
def test_rows_and_lanes_told_are_those_there_are_at_any_moment() -> None:
    seen = 0
    for seed in range(20_001, 20_061):
        told = CheckedSchedule(seed)
        told.run()
        seen += told.seen
        batch = told.head.scheduler.batch
        assert (batch.rows, batch.lanes, batch.chunks) == ((), (), 0)
        assert (batch.used_tokens, batch.reserved_tokens) == (0, 0)
    assert seen > 1000


def test_nothing_is_told_of_an_engine_that_was_asked_nothing() -> None:
    assert Head(2).scheduler.batch == Batch()


def test_a_prompt_is_read_as_far_as_it_came_round() -> None:
    head = Head(2, chunk=4, window=2)
    head.submit(asked := ask("a", prompt=20, tokens=5))
    for _ in range(3):
        head.turn(0.0)
    batch = head.scheduler.batch
    assert batch.rows == (BatchRow(request_id="a", state="reading", prompt_tokens=20, max_tokens=5),)
    assert (batch.chunks, batch.reserved_tokens, batch.used_tokens) == (2, tokens_of(asked), 8)
    head.carry()
    assert head.scheduler.batch.rows[0].read == 8
    assert head.scheduler.batch.chunks == 0


def test_rows_stand_in_lanes_by_number_and_the_queue_in_its_order() -> None:
    head = running(2, "abc", rows=3)
    for name in "xy":
        head.submit(ask(name))
    batch = head.scheduler.batch
    assert [(row.request_id, row.lane) for row in batch.running] == [("a", 2), ("b", 1), ("c", 2)]
    assert [row.request_id for row in batch.queue] == ["x", "y"]
    assert batch.lanes == (BatchLane(rows=1), BatchLane(rows=2))
    assert head.turn(0.0)
    assert head.scheduler.batch.in_flight == 1
