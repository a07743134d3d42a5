"""Brings KV of a request's prefix from elsewhere to the stages, span by span, into a cached row that the request then
continues as usual.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from core.engine.requests import Request
from core.engine.scheduler import Scheduler
from core.errors import Busy
from core.worker.kv_spans import KvSpan
from core.worker.messages import Prefilled, Report
from core.worker.pipeline import Pipeline, StepAnswer


class PasteRequest(NamedTuple):
    """A span of a row on its way round the ring; after the last one the row is complete."""

    request_id: str
    number: int
    is_last: bool


class Source(Protocol):
    """A source of the spans of a row."""

    def want(self, request_id: str, behind: int) -> None:
        """Note that the stages have the first `behind` spans."""

    def ended(self, request_id: str, tokens: int) -> None:
        """Report the tokens that the row holds; 0: the ring reads all of them."""


class _Restoration:
    """A request that waits for its first `tokens` tokens in `handle`. `due`: spans to send; `count`: spans sent."""

    def __init__(self, request: Request, handle: int, tokens: int, source: Source) -> None:
        self.request, self.handle, self.tokens, self.source = request, handle, tokens, source
        self.due: deque[tuple[PasteRequest, KvSpan]] = deque()
        self.count = 0


class Restoring:
    """Restores rows. `go_on` takes a request whose prefix is restored, or has to be read."""

    def __init__(
        self,
        pipeline: Pipeline,
        scheduler: Scheduler,
        report: Callable[[Report], None],
        go_on: Callable[[Request], None],
    ) -> None:
        self._pipeline, self._scheduler, self._report, self._go_on = pipeline, scheduler, report, go_on
        self._waiting: dict[str, _Restoration] = {}
        self._out: set[PasteRequest] = set()

    @property
    def is_busy(self) -> bool:
        return bool(self._out) or any(each.due for each in self._waiting.values())

    @property
    def waiting(self) -> set[str]:
        return set(self._waiting)

    def begin(self, request: Request, tokens: int, source: Source) -> bool:
        """Make room for the first `tokens` tokens of a request, which then waits; False if memory is short."""
        try:
            handle = self._scheduler.hold(request.prefix[:tokens]).handle
        except Busy:
            return False
        self._waiting[request.request_id] = _Restoration(request, handle, tokens, source)
        source.want(request.request_id, 0)
        return True

    def tokens(self, request_id: str) -> int:
        found = self._waiting.get(request_id)
        return found.tokens if found else 0

    def add(self, request_id: str, span: KvSpan, *, is_last: bool) -> None:
        if found := self._waiting.get(request_id):
            found.due.append((PasteRequest(request_id, found.count, is_last), span))
            found.count += 1

    def fail(self, request_id: str) -> None:
        if found := self._waiting.get(request_id):
            self._end(found, is_whole=False)

    def cancel(self, request_id: str) -> Request | None:
        found = self._waiting.pop(request_id, None)
        if found is None:
            return None
        self._drop(found)
        return found.request

    def give_up(self) -> list[Request]:
        waiting = [found.request for found in self._waiting.values()]
        self._waiting.clear()
        self._out.clear()
        return waiting

    def put(self) -> bool:
        """Put a due span on the ring, after the scheduler's work. Raises LinkError."""
        found = next((each for each in self._waiting.values() if each.due), None)
        if found is None:
            return False
        pasted, span = found.due.popleft()
        self._out.add(pasted)
        self._pipeline.mirror(found.handle, span, pasted)
        return True

    def handle_answer(self, asked: PasteRequest, answer: StepAnswer) -> None:
        """Take the result of a span; one that was given up is ignored."""
        if asked not in self._out:
            return
        self._out.discard(asked)
        found, left = self._waiting.get(asked.request_id), answer.span.caches if answer.span else None
        if found is None:
            return
        if left is None or left:  # a stage did not take its parts
            self._end(found, is_whole=False)
        elif asked.is_last:
            self._end(found, is_whole=True)
        elif not (found.due or any(out.request_id == asked.request_id for out in self._out)):
            found.source.want(asked.request_id, asked.number + 1)

    def _end(self, found: _Restoration, *, is_whole: bool) -> None:
        name = found.request.request_id
        del self._waiting[name]
        if is_whole:
            self._scheduler.settle(found.handle)
            found.source.ended(name, found.tokens)
            self._report(Prefilled(request_id=name, done=found.tokens, total=len(found.request.prefix)))
        else:
            self._drop(found)
            found.source.ended(name, 0)
        self._go_on(found.request)

    def _drop(self, found: _Restoration) -> None:
        self._scheduler.gone(found.handle)
        self._scheduler.unpin(found.handle)
