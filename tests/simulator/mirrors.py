"""Carries the spans of `core.worker.mirroring` round a simulated ring, packed as the node keeps them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from types import SimpleNamespace

from core.link.frames import Buffer
from core.worker.kv_spans import STATE, CachePart, KvSpan, SpanVerb
from core.worker.mirroring import CutRequest
from core.worker.pipeline import StepAnswer
from core.worker.restoring import PasteRequest
from tests.support.simulated import Held, Span

STATE_BYTES = 200  # each state travels by itself
Asked = CutRequest | PasteRequest


class SpanPipeline:
    """A pipeline of `layers` stages, reduced to the part a mirror uses; `put` sends a span round them."""

    def __init__(self, layers: int, put: Callable[[Span], None]) -> None:
        self.stage = SimpleNamespace(layers=SimpleNamespace(caches=SimpleNamespace(count=layers)))
        self._put = put

    def mirror(self, handle: int, span: KvSpan, asked: Asked) -> None:
        """As `core.worker.pipeline.Pipeline.mirror`."""
        held = tuple(Held(stage, part.needs == STATE, _unpacked(part.data)) for stage, part in span.caches.items())
        self._put(Span(handle, span.row, span.start, span.stop, span.verb is SpanVerb.CUT, asked, held))


def answer_of(span: Span, values: Sequence[Held]) -> StepAnswer:
    """The answer to a span, when its `values` are back."""
    verb = SpanVerb.CUT if span.is_cut else SpanVerb.PASTE
    caches = {held.stage: _part(span, held) for held in values}
    return StepAnswer(span.asked, span=KvSpan(verb, span.row, span.start, span.stop, caches))


def _part(span: Span, held: Held) -> CachePart:
    data = struct.pack(f"{len(held.numbers)}q", *held.numbers)
    return CachePart(STATE_BYTES, STATE, data) if held.is_state else CachePart(span.start, None, data)


def _unpacked(data: Buffer) -> tuple[int, ...]:
    return struct.unpack(f"{len(data) // 8}q", data)
