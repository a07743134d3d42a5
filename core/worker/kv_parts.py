"""Payload of KV frames: a part of one cache of a plain row, between a stage and a session file.

payload = verb u8 | cache u32 | offset u64 | total u64 | bytes. The head requests a part (FETCH) or brings one (FILL).
The stage that has this cache answers (HELD, FILLED); the others pass the frame on. `total`: bytes of the whole cache,
as `core.models.slicing.cache_state` packs it; `offset`: where in it the part starts.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from core.errors import ProtocolError
from core.link.frames import Buffer
from core.settings import MIB
from core.worker.stage import LoadedStage

PART_BYTES: Final = 4 * MIB
# far beyond any cache: limits what a hostile Mac makes this one keep
MOST_BYTES: Final = 1 << 32
PART: Final = struct.Struct("<BIQQ")


class Verb(IntEnum):
    """The request or reply of a KV frame."""

    FETCH = 1
    HELD = 2
    FILL = 3
    FILLED = 4


class KvPart(NamedTuple):
    """A part of a cache."""

    verb: Verb
    cache: int  # number in the whole model
    offset: int = 0
    total: int = 0
    data: Buffer = b""  # of HELD and FILL only

    @property
    def is_answer(self) -> bool:
        return self.verb in (Verb.HELD, Verb.FILLED)


def encode_part(part: KvPart) -> list[Buffer]:
    head = PART.pack(part.verb, part.cache, part.offset, part.total)
    return [head, part.data] if part.data else [head]


def decode_part(payload: Buffer) -> KvPart:
    """Decode the body of a KV frame; its data is a copy. Raises ProtocolError."""
    try:
        verb, cache, offset, total = PART.unpack_from(payload)
        part = KvPart(Verb(verb), cache, offset, total, bytes(payload[PART.size :]))
    except (struct.error, ValueError) as error:
        raise ProtocolError("A cache part does not decode.") from error
    too_much = len(part.data) > PART_BYTES or total > MOST_BYTES
    if too_much or (part.data and offset + len(part.data) > total):
        raise ProtocolError(f"A cache of {total} bytes has no {len(part.data)} bytes at {offset}.")
    return part


class Exchange:
    """Sends and receives the caches of one stage, one at a time; a part that isn't the next one starts over."""

    def __init__(self, stage: LoadedStage) -> None:
        self._stage = stage
        self._giving: tuple[int, int, bytes] | None = None
        self._taken = bytearray()

    def reset(self) -> None:
        self._giving = None
        self._taken.clear()

    def answer(self, handle: int, part: KvPart) -> KvPart:
        """Answer a part of a cache of this stage. Raises ProtocolError, SessionError for wrong bytes, StageFailed."""
        return self._give(handle, part) if part.verb is Verb.FETCH else self._take(handle, part)

    def _give(self, handle: int, part: KvPart) -> KvPart:
        if part.offset == 0:
            self._giving = (handle, part.cache, self._stage.pack(handle, part.cache))
        if self._giving is None or self._giving[:2] != (handle, part.cache) or part.offset > len(self._giving[2]):
            raise ProtocolError(f"The part at {part.offset} of cache {part.cache} is not the next one.")
        data = self._giving[2]
        held = memoryview(data)[part.offset : part.offset + PART_BYTES]
        if part.offset + len(held) == len(data):
            self._giving = None
        return KvPart(Verb.HELD, part.cache, part.offset, len(data), held)

    def _take(self, handle: int, part: KvPart) -> KvPart:
        self._stage.check_awaited(handle, part.cache, part.total)
        if part.offset == 0:
            self._taken.clear()
        if part.offset != len(self._taken):
            raise ProtocolError(f"The part at {part.offset} of cache {part.cache} is not the next one.")
        self._taken += part.data
        if len(self._taken) == part.total:
            data, self._taken = self._taken, bytearray()
            self._stage.fill(handle, part.cache, data)
        return KvPart(Verb.FILLED, part.cache, part.offset, part.total)
