"""The answers to one request of another program: what comes of each, in the order of its coming."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from time import monotonic
from typing import Final

from core.errors import MaclusterError, NodeError, NotLoaded, error_from
from core.events import Plan, RequestDone, Snapshot
from core.node.answers.answers import Answers
from core.node.answers.told import Said
from core.node.base.own_worker import OwnWorker
from core.node.base.stopwatch import Stopwatch
from core.node.base.tasks import Tasks, Work
from core.node.public_api.waiting_line import WaitingLine
from core.requests import ChatRequest
from core.text import clean_text

KEEP_ALIVE_S: Final = 10.0
SILENT_S: Final = 120.0  # so long may the ring do nothing for anybody, once an answer has its turn

Came = tuple[int, Said]


class Answering:
    """`now` tells which model is loaded, `worker` whether this Mac serves another's; `queue` requests may wait."""

    def __init__(
        self, answers: Answers, now: Callable[[], Snapshot], worker: OwnWorker, tasks: Tasks, queue: int
    ) -> None:
        self._answers, self._now, self._worker, self._tasks = answers, now, worker, tasks
        self.line = WaitingLine(queue, self._rows)

    def plan(self) -> Plan:
        """What is loaded. Raises NotLoaded, with the reason."""
        now = self._now()
        if now.plan:
            return now.plan
        if now.recovery:
            raise NotLoaded(now.recovery.text, now.recovery.fix)
        if self._worker.plan:
            head = clean_text(self._worker.plan.head.peer)
            raise NotLoaded(f"This Mac has layers of a model that {head} leads.", f"Ask the API of {head}.")
        raise NotLoaded("No model is loaded.")

    async def count(self, wanted: ChatRequest) -> int:
        """How many tokens its prompt has. Raises MaclusterError."""
        return await self._answers.count(wanted)

    async def text_of(self, tokens: Sequence[int]) -> str:
        """What they say. Raises MaclusterError."""
        return await self._answers.text_of(tokens)

    async def events(
        self, wanted: Sequence[ChatRequest], watch: Stopwatch | None = None
    ) -> AsyncGenerator[Came | None, None]:
        """What comes of each, by its index, until all have ended; None where nothing came for a while. They run at the
        same time, as far as there are rows. Who stops listening before does not want them any more. Raises
        MaclusterError: Busy where too many wait, NodeError where the ring says nothing any more.
        """
        arrived: asyncio.Queue[Came | MaclusterError] = asyncio.Queue()
        heard: float | None = None  # None while it waits for its turn

        together = min(len(wanted), max(1, self._rows()))
        free = asyncio.Semaphore(together)

        async def follow(index: int, watch: Stopwatch | None) -> None:
            try:
                async with free, aclosing(self._answers.follow(wanted[index], watch)) as events:
                    async for event in events:
                        arrived.put_nowait((index, event))
            except MaclusterError as error:
                arrived.put_nowait(error)

        async def run() -> None:
            nonlocal heard
            try:
                async with self.line.turn(together):
                    heard = monotonic()
                    if watch:
                        watch.lap("queue")
                    works = [follow(index, None if index else watch) for index in range(len(wanted))]
                    await self._all(works, fail)
            except MaclusterError as error:
                arrived.put_nowait(error)

        def fail() -> None:
            arrived.put_nowait(NodeError("The node failed by a defect.", "Its log says where."))

        running = self._tasks.spawn("An answer for the API", run(), fail)
        left = len(wanted)
        try:
            while left:
                try:
                    async with asyncio.timeout(KEEP_ALIVE_S):
                        came = await arrived.get()
                except TimeoutError:
                    if heard is not None and monotonic() - max(heard, self._answers.heard_at) > SILENT_S:
                        raise self._silent() from None
                    yield None
                    continue
                heard = monotonic()
                if isinstance(came, MaclusterError):
                    raise came
                if isinstance(done := came[1], RequestDone):
                    left -= 1
                    _check(done)
                yield came
        finally:
            running.cancel()

    async def _all(self, works: Iterable[Work], on_defect: Callable[[], None]) -> None:
        rows = [self._tasks.spawn("A row for the API", work, on_defect) for work in works]
        try:
            await asyncio.wait(rows)
        finally:
            for row in rows:
                row.cancel()

    def _rows(self) -> int:
        plan = self._now().plan
        return plan.rows if plan else 1

    def _silent(self) -> NodeError:
        recovery = self._now().recovery
        why = f" {recovery.text}" if recovery else ""
        return NodeError(f"Nothing came for {SILENT_S:.0f} s.{why}", "Ask again.")


def _check(done: RequestDone) -> None:
    if done.problem:
        raise error_from(done.problem)
    if done.finish_reason == "cancelled" and not done.tokens:
        raise NodeError("Somebody at that Mac ended this request before it said anything.", "Ask again.")
