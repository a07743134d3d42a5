"""Runs the requests of API clients, on this Mac or through the relay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from time import monotonic
from typing import Final, NamedTuple, Protocol

from core.errors import Busy, MaclusterError, NodeError, NotLoaded, NotReady, UsageError, error_from
from core.events import RequestDone, Snapshot
from core.node.answers.answer_stream import Said
from core.node.base.stopwatch import Stopwatch
from core.node.base.tasks import Tasks, Work
from core.node.public_api.load_on_request import LoadOnRequest
from core.node.public_api.request_queue import RequestQueue
from core.requests.answers import ChatRequest
from core.settings import DEFAULT_ROWS

KEEP_ALIVE_S: Final = 10.0
SILENT_S: Final = 120.0  # after this much silence of the ring an answer fails

IndexedEvent = tuple[int, Said]
Arrived = asyncio.Queue[IndexedEvent | MaclusterError]


class Answerer(Protocol):
    """Answers requests: this Mac's answers, or another Mac's through the relay."""

    @property
    def active_at(self) -> float:
        """When an answer last made progress (monotonic seconds)."""

    def follow(self, request: ChatRequest, watch: Stopwatch | None = None) -> AsyncGenerator[Said, None]:
        """The events of an answer, to its end; closing the generator cancels it."""

    async def count(self, request: ChatRequest) -> int:
        """The number of tokens of the prompt."""

    async def text_of(self, ids: Sequence[int]) -> str:
        """Token ids as text."""


class LedModel(NamedTuple):
    """A model that is loaded, or can be."""

    name: str
    rows: int
    answers: Answerer
    context: int = 0  # tokens; 0: not known before it is loaded


class ApiAnswers:
    """Runs the requests of API clients: queues them, loads models for them, and merges the events of several."""

    def __init__(
        self,
        answers: Answerer,
        now: Callable[[], Snapshot],
        elsewhere: Callable[[], LedModel],  # the model that another Mac leads; raises NotLoaded
        tasks: Tasks,
        queue: int,  # how many requests may wait
        loading: LoadOnRequest | None = None,  # None if a request may not load models
    ) -> None:
        self._answers, self._now, self._elsewhere, self._tasks = answers, now, elsewhere, tasks
        self._loading, self._turn_to_load = loading, asyncio.Lock()
        self._open: dict[Arrived, bool] = {}  # whether another Mac relays it
        self.queue = RequestQueue(queue, self._rows)

    def model(self) -> LedModel:
        return self.own() or self._elsewhere()

    def own(self) -> LedModel | None:
        """The model that this Mac leads, or None. Raises NotLoaded during a recovery."""
        now = self._now()
        if now.plan and now.host is None:
            return LedModel(now.plan.name, now.plan.rows, self._answers, now.plan.context)
        if now.recovery:
            raise NotReady(now.recovery.text, now.recovery.fix)
        return None

    def offered(self) -> tuple[LedModel, ...]:
        """The models that a request may name, the loaded one first. While another Mac leads, only its model."""
        try:
            led: tuple[LedModel, ...] = (self.model(),)
        except NotLoaded:
            led = ()
        if self._loading is None or (led and led[0].answers is not self._answers):
            return led
        known = {model.name for model in led}
        others = (name for name in self._loading.names() if name not in known)
        return (*led, *(LedModel(name, DEFAULT_ROWS, self._answers) for name in others))

    async def count(self, request: ChatRequest, model: LedModel) -> int:
        self._check_loaded(model)
        return await model.answers.count(request)

    async def text_of(self, tokens: Sequence[int], model: LedModel) -> str:
        self._check_loaded(model)
        return await model.answers.text_of(tokens)

    async def events(
        self,
        requests: Sequence[ChatRequest],
        model: LedModel,
        watch: Stopwatch | None = None,
        *,
        is_relayed: bool = False,
    ) -> AsyncGenerator[IndexedEvent | None, None]:
        """The events of each request, by its index, until all have ended; None after `KEEP_ALIVE_S` of silence. The
        requests run in parallel where rows are free; a model that isn't loaded is loaded when the queue allows it.
        Closing the generator cancels them. Raises MaclusterError: Busy if too many wait, NodeError after `SILENT_S`.
        """
        if watch:
            watch.lap("route")
        answers = model.answers
        arrived: Arrived = asyncio.Queue()
        active: float | None = None  # None while it waits in the queue
        together = min(len(requests), max(1, model.rows))
        free = asyncio.Semaphore(together)

        async def follow(index: int, watch: Stopwatch | None) -> None:
            try:
                async with free, aclosing(answers.follow(requests[index], watch)) as events:
                    async for event in events:
                        arrived.put_nowait((index, event))
            except MaclusterError as error:
                arrived.put_nowait(error)

        async def run() -> None:
            nonlocal active
            if watch:
                watch.lap("reserve")
            try:
                async with self.queue.turn(together, model.name):
                    if watch:
                        watch.lap("queue_wait")
                    await self._make_ready(model)
                    active = monotonic()
                    works = [follow(index, None if index else watch) for index in range(len(requests))]
                    await self._all(works, fail)
            except MaclusterError as error:
                arrived.put_nowait(error)

        def fail() -> None:
            arrived.put_nowait(NodeError("Internal error in macluster.", "Its log says where."))

        running = self._tasks.spawn("An answer for the API", run(), fail)
        left = len(requests)
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
        """Load `wanted` if it isn't loaded. Raises Busy rather than end an answer of this Mac's user."""
        async with self._turn_to_load:
            now = self._now()
            if self._loading is None or self._is_loaded(wanted):
                return
            if now.recovery:
                raise NotReady(now.recovery.text, now.recovery.fix)
            if now.running:
                raise Busy(f"{wanted.name} can't be loaded yet: another model is answering on this Mac.")
            await self._loading.load(wanted.name)
            self.queue.look()

    def _is_loaded(self, wanted: LedModel) -> bool:
        if wanted.answers is not self._answers:
            return True
        now = self._now()
        return bool(now.plan and now.plan.name == wanted.name) and (now.plan_status != "broken" or bool(now.recovery))

    def _check_loaded(self, wanted: LedModel) -> None:
        if self._loading and not self._is_loaded(wanted):
            raise UsageError(f"The model {wanted.name} is not loaded yet.", "Request an answer of it first.")

    def _rows(self) -> int:
        try:
            return self.model().rows
        except NotLoaded:
            return 1

    def _silent(self) -> NodeError:
        now = self._now()
        if now.plan and now.plan_status == "loading":
            return NotReady(f"{now.plan.name} is loading.")
        why = f" {now.recovery.text}" if now.recovery else ""
        return NodeError(f"No token for {SILENT_S:.0f} s.{why}", "Send the request again.")


def _check(done: RequestDone) -> None:
    if done.problem:
        raise error_from(done.problem)
    if done.finish_reason == "cancelled" and not done.tokens:
        raise NodeError("The request was cancelled on that Mac before its first token.", "Send it again.")
