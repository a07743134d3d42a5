"""Requests of programs run in order of arrival, up to the number of rows; the queue is bounded."""

from __future__ import annotations

import asyncio

import pytest

from core.errors import Busy
from core.node.public_api import request_queue
from core.node.public_api.request_queue import RequestQueue
from tests.support.waiting import until


class Crowd:
    """Requests by name; a running one runs until it is released."""

    def __init__(self, line: RequestQueue) -> None:
        self.line, self.running = line, list[str]()
        self._ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, name: str, rows: int = 1, model: str = "tiny") -> None:
        self._ends[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._run(name, rows, model))
        await asyncio.sleep(0)

    async def _run(self, name: str, rows: int, model: str) -> None:
        async with self.line.turn(rows, model):
            self.running.append(name)
            try:
                await self._ends[name].wait()
            finally:
                self.running.remove(name)

    async def go(self, name: str) -> None:
        self._ends[name].set()
        await self.tasks[name]


async def test_who_comes_first_runs_first_and_the_queue_has_an_end() -> None:
    crowd = Crowd(RequestQueue(2, lambda: 4))
    await crowd.come("one", 3)
    await crowd.come("two", 2)
    await crowd.come("three")  # there is room, but two came before
    assert (crowd.running, len(crowd.line)) == (["one"], 2)
    await crowd.come("four")
    with pytest.raises(Busy, match="The queue is full: 2 requests wait"):
        await crowd.tasks["four"]
    await crowd.go("one")
    await until(lambda: crowd.running == ["two", "three"])
    await crowd.come("all", 8)
    await crowd.go("two")
    await crowd.go("three")
    await until(lambda: crowd.running == ["all"])
    await crowd.go("all")


async def test_who_is_refused_is_told_to_wait_as_long_as_others_did(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(request_queue, "monotonic", lambda: now)
    crowd = Crowd(RequestQueue(1, lambda: 1))

    async def told(name: str) -> int:
        await crowd.come(name)
        with pytest.raises(Busy) as refused:
            await crowd.tasks[name]
        return refused.value.retry_s

    await crowd.come("one")
    await crowd.come("two")
    assert await told("at once") == 1
    now = 113.2
    assert await told("after the first has waited") == 14
    await crowd.go("one")
    await crowd.come("three")
    assert await told("as the last one waited") == 14
    now = 1000.0
    assert await told("for ever") == request_queue.MAX_RETRY_S
    await crowd.go("two")
    await crowd.go("three")


async def test_who_wants_another_model_waits_until_nobody_runs_and_whoever_comes_later_waits_for_him() -> None:
    rows = 1
    crowd = Crowd(RequestQueue(9, lambda: rows))
    await crowd.come("one")
    await crowd.come("other", model="large")
    await crowd.come("two")
    await crowd.come("more", model="large")
    await crowd.go("one")
    await until(lambda: crowd.running == ["other"])
    rows = 4  # for the other model, which is loaded first
    crowd.line.look()
    await asyncio.sleep(0)
    assert crowd.running == ["other"], "the next one wants the old model"
    await crowd.go("other")
    await until(lambda: crowd.running == ["two"])
    await crowd.go("two")
    await until(lambda: crowd.running == ["more"])
    await crowd.come("last", model="large")
    assert crowd.running == ["more", "last"]
    await crowd.go("more")
    await crowd.go("last")


@pytest.mark.parametrize("when", ["before", "as another ends", "once it is his turn"])
async def test_who_goes_away_while_he_waits_keeps_no_row_and_harms_nobody(when: str) -> None:
    crowd = Crowd(RequestQueue(9, lambda: 1))
    for name in ("one", "gone", "last"):
        await crowd.come(name)
    if when != "before":
        crowd._ends["one"].set()
    if when == "once it is his turn":
        await asyncio.sleep(0)
        assert (crowd.running, len(crowd.line)) == ([], 1), "his turn is given, and he has not noticed yet"
    crowd.tasks["gone"].cancel()
    await crowd.go("one")
    await until(lambda: crowd.running == ["last"])
    await crowd.go("last")
    assert crowd.line._running == 0
