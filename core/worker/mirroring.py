"""What the stages hold of the rows that run goes to the head's node as it grows, and from there to the next worker.

A span of tokens is cut out of all caches at once by one frame that goes round the ring, behind the work that is there,
and few at a time, so that no work waits long for them; the node keeps it. A worker that begins where another one ended
takes it back span by span, into a row that is parked, which the request then continues like any other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from core.engine.requests import Request
from core.engine.scheduler import HeldRow, Scheduler
from core.errors import Busy
from core.events import Plan
from core.worker.kv_spans import SPAN_BYTES, CachePart, KvSpan, SpanVerb, decode_caches, encode_caches
from core.worker.messages import Mirrored, MirrorSpan, MirrorSpans, Prefilled, Report, Restored, WantSpans
from core.worker.pipeline import Pipeline, StepAnswer

# tokens that a row may be behind: less would cost more frames, and more would be read again
EVERY: Final = 32
# so many fewer tokens to read are worth a restoration
WORTH: Final = 32
# spans under way while prompts are read; one while tokens are written, behind which nobody waits long
MOST_OUT: Final = 4


class CutRequest(NamedTuple):
    """The tokens [start, stop) of a row are on their way round the ring, to the node."""

    request_id: str
    start: int
    stop: int


class PasteRequest(NamedTuple):
    """The tokens [start, stop) of a row are on their way round the ring, to the stages."""

    request_id: str
    start: int
    stop: int


class _Restoration(NamedTuple):
    """A request that waits for its beginning, of which `handle` is to hold `tokens` tokens."""

    request: Request
    handle: int
    tokens: int


class Mirroring:
    """`go_on` takes a request whose beginning is there, or has to be read. Nothing is cut where the plan wants no
    mirror.
    """

    def __init__(
        self,
        plan: Plan,
        pipeline: Pipeline,
        scheduler: Scheduler,
        report: Callable[[Report], None],
        go_on: Callable[[Request], None],
    ) -> None:
        self._pipeline, self._scheduler, self._report, self._go_on = pipeline, scheduler, report, go_on
        self._is_on = plan.mirror_bytes > 0
        self._token_bytes = max(1, sum(stage.kv_bytes for stage in plan.stages) // max(1, plan.context))
        self._cut: dict[str, int] = {}  # so many tokens of a row were asked for
        self._covered: dict[str, dict[int, int]] = {}  # of a row's windows: the token from which on none is missing
        self._stopped: set[str] = set()
        self._out: set[CutRequest | PasteRequest] = set()
        self._restoring: dict[str, _Restoration] = {}
        self._due: deque[tuple[_Restoration, KvSpan]] = deque()

    @property
    def is_busy(self) -> bool:
        """Whether a span is on its way round the ring, or waits for that."""
        return bool(self._due or self._out)

    def begin(self, request: Request) -> bool:
        """Restore what is mirrored of a request, which `go_on` then takes; False where it may go on at once."""
        self._cut[request.request_id] = request.mirrored
        self._stopped.discard(request.request_id)
        self._covered.pop(request.request_id, None)
        tokens = min(request.mirrored, len(request.beginning) - 1)
        if tokens != request.mirrored or tokens < self._scheduler.reusable(request) + WORTH:
            return False
        try:
            handle = self._scheduler.hold(request.beginning[:tokens]).handle
        except Busy:
            return False
        self._restoring[request.request_id] = _Restoration(request, handle, tokens)
        self._report(WantSpans(request_id=request.request_id, start=0))
        return True

    def take(self, message: MirrorSpans) -> None:
        """The node gives spans of a row that is restored; none where it has dropped them meanwhile."""
        restoration = self._restoring.get(message.request_id)
        if restoration and not message.spans:
            self._end(restoration, is_whole=False)
        elif restoration:
            for span in message.spans:
                caches = decode_caches(span.data + span.window)
                self._due.append((restoration, KvSpan(SpanVerb.PASTE, 0, span.start, span.stop, caches)))

    def stop(self, request_id: str) -> None:
        """Nobody keeps more of this row."""
        self._stopped.add(request_id)

    def cancel(self, request_id: str) -> Request | None:
        """Give up a request that is being restored; None where it is not."""
        restoration = self._restoring.pop(request_id, None)
        if restoration is None:
            return None
        self._drop(restoration)
        return restoration.request

    def give_up(self) -> list[Request]:
        """No row is what it was: the requests that wait for their beginning."""
        waiting = [restoration.request for restoration in self._restoring.values()]
        for state in (self._cut, self._covered, self._stopped, self._out, self._restoring, self._due):
            state.clear()
        return waiting

    def put(self) -> bool:
        """A span goes on the ring, if one is due: behind what the scheduler has put there. Raises LinkError."""
        if self._due:
            self._paste(*self._due.popleft())
            return True
        if not self._is_on or len(self._out) >= (1 if self._scheduler.in_flight else MOST_OUT):
            return False
        row = max(self._rows(), key=self._behind, default=None)
        if row is None or self._behind(row) < EVERY:
            return False
        start = self._cut.get(row.request_id, 0)
        asked = CutRequest(row.request_id, start, min(row.tokens, start + max(1, SPAN_BYTES // self._token_bytes)))
        self._cut[row.request_id] = asked.stop
        self._out.add(asked)
        self._pipeline.mirror(row.handle, KvSpan(SpanVerb.CUT, row.row, asked.start, asked.stop, {}), asked)
        return True

    def handle_answer(self, asked: CutRequest | PasteRequest, answer: StepAnswer) -> None:
        """What came of a span; of one that was given up nothing counts any more."""
        if asked not in self._out:
            return
        self._out.discard(asked)
        caches = answer.span.caches if answer.span else None
        if isinstance(asked, CutRequest):
            self._keep(asked, caches)
        elif restoration := self._restoring.get(asked.request_id):
            if caches is None or caches:  # a stage did not take what is its own
                self._end(restoration, is_whole=False)
            elif asked.stop == restoration.tokens:
                self._end(restoration, is_whole=True)
            elif not self._is_under_way(restoration):
                self._report(WantSpans(request_id=asked.request_id, start=asked.stop))

    def _is_under_way(self, restoration: _Restoration) -> bool:
        """Whether spans that the node gave for it are not with the stages yet."""
        name = restoration.request.request_id
        return any(out.request_id == name for out in self._out) or any(each is restoration for each, _ in self._due)

    def _keep(self, asked: CutRequest, caches: Mapping[int, CachePart] | None) -> None:
        if caches is None or len(caches) < self._pipeline.stage.layers.cache_count:
            self._stopped.add(asked.request_id)  # a cache of another kind: it is read again
            return
        plain, windows = (
            {n: part for n, part in caches.items() if (part.needs is None) is kind} for kind in (True, False)
        )
        covered = self._covered.setdefault(asked.request_id, {})
        covered.update({n: part.first for n, part in windows.items() if part.first > asked.start})
        is_whole = all(covered.get(n, 0) <= (part.needs or 0) for n, part in windows.items())
        needs = min((part.needs or 0 for part in windows.values()), default=0)
        data, window = (b"".join(encode_caches(each)) for each in (plain, windows))
        self._token_bytes = max(self._token_bytes, (len(data) + len(window)) // (asked.stop - asked.start))
        span = MirrorSpan(asked.start, asked.stop, data, window, needs if is_whole else None)
        self._report(Mirrored(request_id=asked.request_id, span=span))

    def _rows(self) -> list[HeldRow]:
        """Those that run; what is known of others is forgotten."""
        rows = self._scheduler.held_rows
        names = {row.request_id for row in rows}
        self._stopped &= names
        self._covered = {name: each for name, each in self._covered.items() if name in names}
        self._cut = {name: at for name, at in self._cut.items() if name in names or name in self._restoring}
        return rows

    def _behind(self, row: HeldRow) -> int:
        return 0 if row.request_id in self._stopped else row.tokens - self._cut.get(row.request_id, 0)

    def _paste(self, restoration: _Restoration, span: KvSpan) -> None:
        name = restoration.request.request_id
        if self._restoring.get(name) is restoration:
            asked = PasteRequest(name, span.start, span.stop)
            self._out.add(asked)
            self._pipeline.mirror(restoration.handle, span, asked)

    def _end(self, restoration: _Restoration, *, is_whole: bool) -> None:
        request = restoration.request
        del self._restoring[request.request_id]
        if is_whole:
            self._scheduler.settle(restoration.handle)
            name, count = request.request_id, restoration.tokens
            self._report(Restored(request_id=name, tokens=count))
            self._report(Prefilled(request_id=name, done=count, total=len(request.beginning)))
        else:
            self._drop(restoration)
        self._go_on(request)

    def _drop(self, restoration: _Restoration) -> None:
        self._scheduler.gone(restoration.handle)
        self._scheduler.unpin(restoration.handle)
