"""The answers to one request of another program: what comes of each, in the order of its coming, whichever Mac it is
that answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from time import monotonic
from typing import Final, NamedTuple, Protocol

from core.errors import Busy, MaclusterError, NodeError, NotLoaded, UsageError, error_from
from core.events import RequestDone, Snapshot
from core.node.answers.answer_stream import Said
from core.node.base.stopwatch import Stopwatch
from core.node.base.tasks import Tasks, Work
from core.node.public_api.load_on_request import LoadOnRequest
from core.node.public_api.request_queue import RequestQueue
from core.requests.answers import ChatRequest
from core.settings import DEFAULT_ROWS

KEEP_ALIVE_S: Final = 10.0
SILENT_S: Final = 120.0  # so long may the ring do nothing for anybody, once an answer has its turn

Came = tuple[int, Said]
Arrived = asyncio.Queue[Came | MaclusterError]


class Answerer(Protocol):
    """What gives answers: those of this Mac, or another one's."""

    @property
    def active_at(self) -> float:
        """When something was last done for one of them, by the machine's clock."""

    def follow(self, request: ChatRequest, watch: Stopwatch | None = None) -> AsyncGenerator[Said, None]:
        """What comes of it, to its end. Who stops listening before does not want it any more."""

    async def count(self, request: ChatRequest) -> int:
        """How many tokens its prompt has."""

    async def text_of(self, ids: Sequence[int]) -> str:
        """What token ids say."""


class LedModel(NamedTuple):
    """A model that is loaded, or can be, how many rows run at the same time, and what answers for it."""

    name: str
    rows: int
    answers: Answerer


class ApiAnswers:
    """`now` tells which model this Mac leads, `elsewhere` which one another Mac does; `queue` requests may wait.
    `loading`: what loads others by request, where that is allowed.
    """

    def __init__(
        self,
        answers: Answerer,
        now: Callable[[], Snapshot],
        elsewhere: Callable[[], LedModel],
        tasks: Tasks,
        queue: int,
        loading: LoadOnRequest | None = None,
    ) -> None:
        self._answers, self._now, self._elsewhere, self._tasks = answers, now, elsewhere, tasks
        self._loading, self._turn_to_load = loading, asyncio.Lock()
        self._open: dict[Arrived, bool] = {}  # whether another Mac relays it
        self.line = RequestQueue(queue, self._rows)

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

    def offered(self) -> tuple[LedModel, ...]:
        """What can be asked for, what is loaded first. Nothing is loaded beside what another Mac leads."""
        try:
            led: tuple[LedModel, ...] = (self.model(),)
        except NotLoaded:
            led = ()
        if self._loading is None or (led and led[0].answers is not self._answers):
            return led
        known = {model.name for model in led}
        others = (name for name in self._loading.names() if name not in known)
        return (*led, *(LedModel(name, DEFAULT_ROWS, self._answers) for name in others))

    async def count(self, wanted: ChatRequest, of: LedModel) -> int:
        """How many tokens its prompt has. Raises MaclusterError."""
        self._check_loaded(of)
        return await of.answers.count(wanted)

    async def text_of(self, tokens: Sequence[int], of: LedModel) -> str:
        """What they say. Raises MaclusterError."""
        self._check_loaded(of)
        return await of.answers.text_of(tokens)

    async def events(
        self,
        wanted: Sequence[ChatRequest],
        of: LedModel,
        watch: Stopwatch | None = None,
        *,
        is_relayed: bool = False,
    ) -> AsyncGenerator[Came | None, None]:
        """What comes of each, by its index, until all have ended; None where nothing came for a while. They run at the
        same time, as far as there are rows. Who stops listening before does not want them any more. Where `of`
        is not loaded, it is, once nobody else is answered. Raises MaclusterError: Busy where too many wait, NodeError
        where the ring says nothing any more.
        """
        if watch:
            watch.lap("route")
        answers = of.answers
        arrived: Arrived = asyncio.Queue()
        active: float | None = None  # None while it waits for its turn

        together = min(len(wanted), max(1, of.rows))
        free = asyncio.Semaphore(together)

        async def follow(index: int, watch: Stopwatch | None) -> None:
            try:
                async with free, aclosing(answers.follow(wanted[index], watch)) as events:
                    async for event in events:
                        arrived.put_nowait((index, event))
            except MaclusterError as error:
                arrived.put_nowait(error)

        async def run() -> None:
            nonlocal active
            if watch:
                watch.lap("reserve")
            try:
                async with self.line.turn(together, of.name):
                    if watch:
                        watch.lap("queue_wait")
                    await self._make_ready(of)
                    active = monotonic()
                    works = [follow(index, None if index else watch) for index in range(len(wanted))]
                    await self._all(works, fail)
            except MaclusterError as error:
                arrived.put_nowait(error)

        def fail() -> None:
            arrived.put_nowait(NodeError("The node failed by a defect.", "Its log says where."))

        running = self._tasks.spawn("An answer for the API", run(), fail)
        left = len(wanted)
        self._open[arrived] = is_relayed
        try:
            while left:
                try:
                    async with asyncio.timeout(KEEP_ALIVE_S):
                        came = await arrived.get()
                except TimeoutError:
                    if active is not None and monotonic() - max(active, answers.active_at) > SILENT_S:
                        raise self._silent() from None
                    yield None
                    continue
                active = monotonic()
                if isinstance(came, MaclusterError):
                    raise came
                if isinstance(done := came[1], RequestDone):
                    left -= 1
                    _check(done)
                yield came
        finally:
            del self._open[arrived]
            running.cancel()

    def end(self, error: MaclusterError, *, also_relayed: bool) -> None:
        """Nothing more comes to anybody, for this reason: also to those who wait for their turn, or for another Mac."""
        for arrived, is_relayed in self._open.items():
            if also_relayed or not is_relayed:
                arrived.put_nowait(error)

    async def _all(self, works: Iterable[Work], on_defect: Callable[[], None]) -> None:
        rows = [self._tasks.spawn("A row for the API", work, on_defect) for work in works]
        try:
            await asyncio.wait(rows)
        finally:
            for row in rows:
                row.cancel()

    async def _make_ready(self, wanted: LedModel) -> None:
        """Nothing else runs of what other programs asked for; what this Mac's person asked for is not ended by it."""
        async with self._turn_to_load:
            now = self._now()
            if self._loading is None or self._is_loaded(wanted):
                return
            if now.recovery:
                raise NotLoaded(now.recovery.text, now.recovery.fix)
            if now.running:
                raise Busy(f"An answer of another model is under way on this Mac: {wanted.name} has to wait for it.")
            await self._loading.load(wanted.name)
            self.line.look()

    def _is_loaded(self, wanted: LedModel) -> bool:
        if wanted.answers is not self._answers:
            return True
        now = self._now()
        return bool(now.plan and now.plan.name == wanted.name) and (now.plan_status != "broken" or bool(now.recovery))

    def _check_loaded(self, wanted: LedModel) -> None:
        if self._loading and not self._is_loaded(wanted):
            raise UsageError(f"{wanted.name} is not loaded yet.", "Ask it for an answer first.")

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
