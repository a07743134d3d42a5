"""Payload of KV frames for a mirror: the KV of some tokens of one row, of all caches.

payload = verb u8 | row u32 | start u64 | stop u64 | parts, each cache u32 | first u64 | needs u64 | length u32 | bytes.
`first` and `needs` are those of `CachePart`; 2^64 - 1 stands for no `needs`. The head sends a CUT round, and every
stage adds its caches' KV of the tokens [start, stop). The head sends it back as a PASTE, and every stage takes the
parts of its caches. A stage that fails passes the frame on unchanged, which the head notices.

A state covers all tokens up to its last one, so to a CUT a stage adds only the sizes of its states. A CUT of no tokens,
sent right after that, lists states without bytes, and their owners add them: all are of the same position.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from core.errors import ProtocolError, SessionError, StageFailed
from core.link.arrays import encode_arrays
from core.link.frames import Buffer
from core.models.slicing.cache_state import Piece
from core.settings import MIB
from core.worker.stage import LoadedStage

# the head's aim, and the limit of every stage
SPAN_BYTES: Final = 2 * MIB
MOST_BYTES: Final = 12 * MIB
SPAN: Final = struct.Struct("<BIQQ")
ENTRY: Final = struct.Struct("<IQQI")
# stands for no `needs`
ALL_TOKENS: Final = (1 << 64) - 1
STATE: Final = ALL_TOKENS - 1


class SpanVerb(IntEnum):
    """Whether the stages add or take; distinct from `core.worker.kv_parts.Verb`."""

    CUT = 5
    PASTE = 6


class CachePart(NamedTuple):
    """A cache's KV of a span."""

    first: int  # first token; of a state, its bytes
    # of a window, the first token needed to continue after the span; None: it keeps all tokens; STATE
    needs: int | None
    data: Buffer


class KvSpan(NamedTuple):
    """The KV of tokens [start, stop) of one row of a handle."""

    verb: SpanVerb
    row: int
    start: int
    stop: int
    caches: Mapping[int, CachePart]  # by cache number in the whole model


def encode_span(span: KvSpan) -> list[Buffer]:
    return [SPAN.pack(span.verb, span.row, span.start, span.stop), *encode_caches(span.caches)]


def encode_caches(caches: Mapping[int, CachePart]) -> list[Buffer]:
    pieces: list[Buffer] = []
    for cache, (first, needs, data) in caches.items():
        pieces += [ENTRY.pack(cache, first, ALL_TOKENS if needs is None else needs, len(data)), data]
    return pieces


def is_span(payload: Buffer) -> bool:
    return len(payload) > 0 and payload[0] in tuple(SpanVerb)


def decode_span(payload: Buffer) -> KvSpan:
    """Decode the body of a KV frame; its data is a copy. Raises ProtocolError."""
    try:
        verb, row, start, stop = SPAN.unpack_from(payload)
        return KvSpan(SpanVerb(verb), row, start, stop, decode_caches(payload[SPAN.size :]))
    except (struct.error, ValueError) as error:
        raise ProtocolError("A part of a mirror does not decode.") from error


def decode_caches(data: Buffer) -> dict[int, CachePart]:
    """The reverse of `encode_caches`; copies. Raises ProtocolError."""
    caches: dict[int, CachePart] = {}
    at = 0
    try:
        while at < len(data):
            cache, first, needs, length = ENTRY.unpack_from(data, at)
            at += ENTRY.size + length
            if at > len(data) or cache in caches:
                raise ProtocolError("The caches in a part of a mirror do not add up.")
            caches[cache] = CachePart(first, None if needs == ALL_TOKENS else needs, bytes(data[at - length : at]))
    except struct.error as error:
        raise ProtocolError("A part of a mirror ends too soon.") from error
    return caches


def serve_span(stage: LoadedStage, handle: int, span: KvSpan) -> KvSpan:
    """The span for the next stage. Raises ProtocolError for requests that no honest head sends."""
    try:
        if span.verb is SpanVerb.CUT and span.start == span.stop:
            return _with_states(span, stage.pack_states(handle, span.row, span.stop, [*span.caches]))
        if span.verb is SpanVerb.CUT:
            sizes = stage.states(handle, span.row)
            return _with_own(span, stage.cut(handle, span.row, span.start, span.stop), sizes)
        own = {cache: span.caches[cache].data for cache in stage.layers.caches.indices if cache in span.caches}
        stage.paste(handle, span.start, span.stop, own)
    except (SessionError, StageFailed):
        return span
    return span._replace(caches={cache: part for cache, part in span.caches.items() if cache not in own})


def is_filled(caches: Mapping[int, CachePart]) -> bool:
    return all(part.data for part in caches.values())


def in_parts(states: Mapping[int, int], most: int) -> list[tuple[int, ...]]:
    """Groups of indices of `states` (sizes in bytes) of about `most` bytes each."""
    parts: list[tuple[int, ...]] = []
    size = 0
    for number, held in states.items():
        if parts and size + held <= most:
            parts[-1] += (number,)
            size += held
        else:
            parts.append((number,))
            size = held
    return parts


def _with_states(span: KvSpan, own: Mapping[int, bytes]) -> KvSpan:
    if sum(len(part.data) for part in span.caches.values()) + sum(map(len, own.values())) > MOST_BYTES:
        return span
    return span._replace(caches={**span.caches, **{n: CachePart(len(data), STATE, data) for n, data in own.items()}})


def _with_own(span: KvSpan, own: Mapping[int, Piece], states: Mapping[int, int]) -> KvSpan:
    held = sum(len(part.data) for part in span.caches.values())
    if held + sum(array.nbytes for piece in own.values() for array in piece.arrays) > MOST_BYTES:
        return span
    packed = {
        cache: CachePart(piece.first, piece.needs, b"".join(encode_arrays(piece.arrays)))
        for cache, piece in own.items()
    }
    sizes = {cache: CachePart(size, STATE, b"") for cache, size in states.items()}
    return span._replace(caches={**span.caches, **packed, **sizes})
