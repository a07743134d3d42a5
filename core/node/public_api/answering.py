"""The answers to one request of another program: what comes of each, in the order of its coming, whichever Mac it is
that answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from time import monotonic
from typing import Final, NamedTuple, Protocol

from core.errors import MaclusterError, NodeError, NotLoaded, error_from
from core.events import RequestDone, Snapshot
from core.node.answers.told import Said
from core.node.base.stopwatch import Stopwatch
from core.node.base.tasks import Tasks, Work
from core.node.public_api.waiting_line import WaitingLine
from core.requests import ChatRequest

KEEP_ALIVE_S: Final = 10.0
SILENT_S: Final = 120.0  # so long may the ring do nothing for anybody, once an answer has its turn

Came = tuple[int, Said]


class Answerer(Protocol):
    """What gives answers: those of this Mac, or another one's."""

    @property
    def heard_at(self) -> float:
        """When something was last done for one of them, by the machine's clock."""

    def follow(self, request: ChatRequest, watch: Stopwatch | None = None) -> AsyncGenerator[Said, None]:
        """What comes of it, to its end. Who stops listening before does not want it any more."""

    async def count(self, request: ChatRequest) -> int:
        """How many tokens its prompt has."""

    async def text_of(self, ids: Sequence[int]) -> str:
        """What token ids say."""


class LedModel(NamedTuple):
    """A model that is loaded, how many rows run at the same time, and what answers for it."""

    name: str
    rows: int
    answers: Answerer


class Answering:
    """`now` tells which model this Mac leads, `elsewhere` which one another Mac does; `queue` requests may wait."""

    def __init__(
        self,
        answers: Answerer,
        now: Callable[[], Snapshot],
        elsewhere: Callable[[], LedModel],
        tasks: Tasks,
        queue: int,
    ) -> None:
        self._answers, self._now, self._elsewhere, self._tasks = answers, now, elsewhere, tasks
        self.line = WaitingLine(queue, self._rows)

    def model(self) -> LedModel:
        """What is asked here. Raises NotLoaded, with the reason."""
        return self.own() or self._elsewhere()

    def own(self) -> LedModel | None:
        """What this Mac leads. Raises NotLoaded where it is being recovered."""
        now = self._now()
        if now.plan:
            return LedModel(now.plan.name, now.plan.rows, self._answers)
        if now.recovery:
            raise NotLoaded(now.recovery.text, now.recovery.fix)
        return None

    async def count(self, wanted: ChatRequest) -> int:
        """How many tokens its prompt has. Raises MaclusterError."""
        return await self.model().answers.count(wanted)

    async def text_of(self, tokens: Sequence[int]) -> str:
        """What they say. Raises MaclusterError."""
        return await self.model().answers.text_of(tokens)

    async def events(
        self, wanted: Sequence[ChatRequest], watch: Stopwatch | None = None, of: LedModel | None = None
    ) -> AsyncGenerator[Came | None, None]:
        """What comes of each, by its index, until all have ended; None where nothing came for a while. They run at the
        same time, as far as there are rows. Who stops listening before does not want them any more. `of` whom, where it
        is not whoever is asked now. Raises MaclusterError: Busy where too many wait, NodeError where the ring says
        nothing any more.
        """
        answers = (of or self.model()).answers
        arrived: asyncio.Queue[Came | MaclusterError] = asyncio.Queue()
        heard: float | None = None  # None while it waits for its turn

        together = min(len(wanted), max(1, self._rows()))
        free = asyncio.Semaphore(together)

        async def follow(index: int, watch: Stopwatch | None) -> None:
            try:
                async with free, aclosing(answers.follow(wanted[index], watch)) as events:
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
                    if heard is not None and monotonic() - max(heard, answers.heard_at) > SILENT_S:
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
        try:
            return self.model().rows
        except NotLoaded:
            return 1

    def _silent(self) -> NodeError:
        recovery = self._now().recovery
        why = f" {recovery.text}" if recovery else ""
        return NodeError(f"Nothing came for {SILENT_S:.0f} s.{why}", "Ask again.")


def _check(done: RequestDone) -> None:
    if done.problem:
        raise error_from(done.problem)
    if done.finish_reason == "cancelled" and not done.tokens:
        raise NodeError("Somebody at that Mac ended this request before it said anything.", "Ask again.")
