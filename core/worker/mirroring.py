"""Mirroring: the KV of running rows goes to the head's node as it grows, and from there to the next worker.

A frame that goes round the ring after the other work cuts a span of tokens out of all caches; spans are short, so no
work waits long, and the node keeps them. A worker that continues after another one ended gets them back span by span,
in a cached row that the request then continues as usual.

States are cut by further frames right after the span that reaches the end of the row, so that all are of that position;
a row continues after the newest of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from core.engine.lane_table import HeldRow
from core.engine.requests import Request
from core.engine.scheduler import Scheduler
from core.events import Plan
from core.plan.mirror import MOST_STATE, cut_distance
from core.worker import kv_spans
from core.worker.kv_spans import SPAN_BYTES, CachePart, KvSpan, SpanVerb, decode_caches, encode_caches, in_parts
from core.worker.messages import Mirrored, MirrorSpan, MirrorSpans, Report, Restored, Unmirrored, WantSpans
from core.worker.pipeline import Pipeline, StepAnswer
from core.worker.restoring import PasteRequest, Restoring

# restoring pays from this number of tokens on
WORTH: Final = 32
# spans in flight while prompts are read; one while tokens are written, where waiting costs more
MOST_OUT: Final = 4
WANTED: Final = CachePart(0, kv_spans.STATE, b"")


class CutRequest(NamedTuple):
    """The tokens [start, stop) of a row go to the node, or, of no tokens, the states with these numbers."""

    request_id: str
    start: int
    stop: int
    states: tuple[int, ...] = ()
    is_last: bool = True  # no more states of this position follow


class Mirroring:
    """Cuts and restores mirrored rows. `go_on` takes a request whose prefix is restored, or has to be read. Nothing is
    cut if the plan wants no mirror. Other sources of prefixes share `restoring`.
    """

    def __init__(
        self,
        plan: Plan,
        pipeline: Pipeline,
        scheduler: Scheduler,
        report: Callable[[Report], None],
        go_on: Callable[[Request], None],
    ) -> None:
        self._pipeline, self._scheduler, self._report = pipeline, scheduler, report
        self.restoring = Restoring(pipeline, scheduler, report, go_on)
        self._is_on = plan.mirror_bytes > 0
        self._token_bytes = max(1, sum(stage.kv_bytes for stage in plan.stages) // max(1, plan.context))
        self._cut: dict[str, int] = {}  # tokens of a row that were requested
        self._stands: dict[str, int] = {}  # position of the states that were requested
        self._covered: dict[str, dict[int, int]] = {}  # of a row's windows: the token from which on none is missing
        self._stopped: set[str] = set()
        self._out: set[CutRequest] = set()
        self._states: dict[int, int] = {}  # bytes of each state cache, by the last span
        self._grows = False  # whether states grow with the tokens
        self._needs: dict[str, int | None] = {}  # what a row needs to continue after its last span, besides states

    @property
    def is_busy(self) -> bool:
        return bool(self._out) or self.restoring.is_busy

    def begin(self, request: Request) -> bool:
        """Restore the mirrored part of a request, which `go_on` then takes; False if it can continue at once."""
        self._cut[request.request_id] = self._stands[request.request_id] = request.mirrored
        self._stopped.discard(request.request_id)
        self._covered.pop(request.request_id, None)
        tokens = min(request.mirrored, len(request.prefix) - 1)
        if tokens != request.mirrored or tokens < self._scheduler.reusable(request) + WORTH:
            return False
        return self.restoring.begin(request, tokens, self)

    def want(self, request_id: str, behind: int) -> None:
        self._report(WantSpans(request_id=request_id, behind=behind))

    def ended(self, request_id: str, tokens: int) -> None:
        if tokens:
            self._report(Restored(request_id=request_id, tokens=tokens))

    def take(self, message: MirrorSpans) -> None:
        """Take spans of a row from the node; none if it has dropped them."""
        name = message.request_id
        if not message.spans:
            self.restoring.fail(name)
        for span in message.spans:
            is_last = span.stop == self.restoring.tokens(name) and span.needs is not None
            caches = decode_caches(span.data + span.window)
            self.restoring.add(name, KvSpan(SpanVerb.PASTE, 0, span.start, span.stop, caches), is_last=is_last)

    def stop(self, request_id: str) -> None:
        self._stopped.add(request_id)

    def give_up(self) -> list[Request]:
        for state in (self._cut, self._stands, self._covered, self._needs, self._stopped, self._out):
            state.clear()
        return self.restoring.give_up()

    def put(self) -> bool:
        """Put a due span on the ring, after the scheduler's work. Raises LinkError."""
        if self.restoring.put():
            return True
        if not self._is_on or len(self._out) >= (1 if self._scheduler.in_flight else MOST_OUT):
            return False
        row = max(self._rows(), key=self._behind, default=None)
        if row is None or self._behind(row) < cut_distance(sum(self._states.values())):
            return False
        for asked in self._cuts(row):
            span = KvSpan(SpanVerb.CUT, row.row, asked.start, asked.stop, dict.fromkeys(asked.states, WANTED))
            self._out.add(asked)
            self._pipeline.mirror(row.handle, span, asked)
        return True

    def _cuts(self, row: HeldRow) -> list[CutRequest]:
        name, start = row.request_id, self._cut.get(row.request_id, 0)
        stop = self._cut[name] = min(row.tokens, start + max(1, SPAN_BYTES // self._token_bytes))
        cuts = [CutRequest(name, start, stop)] if start < stop else []
        if stop == row.tokens and self._states:
            self._stands[name] = stop
            parts = in_parts(self._states, SPAN_BYTES)
            cuts += [CutRequest(name, stop, stop, part, is_last=part is parts[-1]) for part in parts]
        return cuts

    def handle_answer(self, asked: CutRequest | PasteRequest, answer: StepAnswer) -> None:
        if isinstance(asked, PasteRequest):
            self.restoring.handle_answer(asked, answer)
        elif asked in self._out:
            self._out.discard(asked)
            self._keep(asked, answer.span.caches if answer.span else None)

    def _keep(self, asked: CutRequest, caches: Mapping[int, CachePart] | None) -> None:
        name = asked.request_id
        count = len(asked.states) or self._pipeline.stage.layers.caches.count
        if name in self._stopped:
            return
        if caches is None or len(caches) < count or not (asked.start < asked.stop or kv_spans.is_filled(caches)):
            self._give_up_on(name)  # a stage failed
        elif asked.states:
            needs = self._needs.get(name) if asked.is_last else None
            self._mirror(name, MirrorSpan(asked.start, asked.stop, b"".join(encode_caches(caches)), needs=needs))
        else:
            self._keep_tokens(asked, caches)

    def _keep_tokens(self, asked: CutRequest, caches: Mapping[int, CachePart]) -> None:
        name = asked.request_id
        states = {n: part.first for n, part in caches.items() if part.needs == kv_spans.STATE}
        self._grows |= any(self._states.get(n, size) != size for n, size in states.items())
        self._states = states
        if max(states.values(), default=0) > MOST_STATE or (self._grows and sum(states.values()) > MOST_STATE):
            self._give_up_on(name)  # the whole state would travel each time
            return
        plain = {n: part for n, part in caches.items() if part.needs is None}
        windows = {n: part for n, part in caches.items() if part.needs is not None and n not in states}
        covered = self._covered.setdefault(name, {})
        covered.update({n: part.first for n, part in windows.items() if part.first > asked.start})
        is_whole = all(covered.get(n, 0) <= (part.needs or 0) for n, part in windows.items())
        needs = min((part.needs or 0 for part in windows.values()), default=0) if is_whole else None
        self._needs[name] = needs
        data, window = (b"".join(encode_caches(each)) for each in (plain, windows))
        self._token_bytes = max(self._token_bytes, (len(data) + len(window)) // (asked.stop - asked.start))
        self._mirror(name, MirrorSpan(asked.start, asked.stop, data, window, None if states else needs))

    def _give_up_on(self, name: str) -> None:
        self._stopped.add(name)
        self._report(Unmirrored(request_id=name))

    def _mirror(self, name: str, span: MirrorSpan) -> None:
        self._report(Mirrored(request_id=name, span=span))

    def _rows(self) -> list[HeldRow]:
        rows = self._scheduler.held_rows
        names = {row.request_id for row in rows}
        self._stopped &= names
        for known in (self._covered, self._needs):
            for name in known.keys() - names:
                del known[name]
        for places in (self._cut, self._stands):
            for name in places.keys() - names - self.restoring.waiting - self._scheduler.queued:
                del places[name]
        return rows

    def _behind(self, row: HeldRow) -> int:
        mirrored = self._stands if self._states else self._cut
        return 0 if row.request_id in self._stopped else row.tokens - mirrored.get(row.request_id, 0)
