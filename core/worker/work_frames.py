"""A frame of the engine: which work it belongs to, and what it carries.

body = step u64 | base u64 | handle u32 | payload.   `base` is the lowest step that the head still waits for: nobody
below it will be asked for again. The payload is the arrays of a boundary (ACTIVATION), the operations of a composition
(COMPOSE), why a stage could not do the work (ERROR), or nothing (ACK).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from core.engine.work import Op
from core.errors import Problem, ProtocolError
from core.link.channel import Frame
from core.link.frames import Buffer, Flag, FrameType
from core.text import clean_text

WORK: Final = struct.Struct("<QQI")
WORK_TYPES: Final = frozenset({FrameType.ACTIVATION, FrameType.COMPOSE, FrameType.ACK, FrameType.ERROR})
TEXT_LIMIT: Final = 500
NO_REQUEST: Final = bytes(16)
NO_STEP: Final = 0  # an ERROR that belongs to no work: the ring breaks
QUIET: Final = int(Flag.PREFILL)

# what msgspec raises for bytes that no honest peer sends
UNREADABLE: Final = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)

_ops = msgspec.msgpack.Decoder(tuple[Op, ...])
_problem = msgspec.msgpack.Decoder(Problem)


class WorkFrame(NamedTuple):
    """What one stage sends to the next for step `step`; it can be sent again as often as needed.

    `position`: tokens that the handle was given before; `rows`: positions of all its rows that the payload covers;
    `quiet`: nobody needs the logits, so the last stage answers with an ACK. `request`: whose prompt it is; zeros where
    the rows of several requests travel together.
    """

    kind: FrameType
    step: int
    handle: int = 0
    request: bytes = NO_REQUEST
    position: int = 0
    rows: int = 0
    quiet: bool = False
    payload: Sequence[Buffer] = ()

    def parts(self, base: int) -> list[Buffer]:
        """The body, when `base` is the lowest step that is out."""
        return [WORK.pack(self.step, base, self.handle), *self.payload]


def read_work(frame: Frame) -> tuple[WorkFrame, int]:
    """The work frame and its base; the payload is a view that is valid until the next frame. Raises ProtocolError."""
    header, body = frame
    if len(body) < WORK.size:
        raise ProtocolError(f"Frame 0x{header.type:02x} is too short to say which step it belongs to.")
    step, base, handle = WORK.unpack_from(body)
    quiet = bool(header.flags & QUIET)
    work = WorkFrame(header.type, step, handle, header.request_id, header.pos, header.rows, quiet, (body[WORK.size :],))
    return work, base


def encode_ops(ops: Sequence[Op]) -> list[Buffer]:
    """The payload of a COMPOSE."""
    return [msgspec.msgpack.encode(tuple(ops))]


def decode_ops(payload: Buffer) -> tuple[Op, ...]:
    """What a COMPOSE asks for. Raises ProtocolError."""
    try:
        return _ops.decode(payload)
    except UNREADABLE as error:
        raise ProtocolError("A composition does not decode.") from error


def encode_problem(problem: Problem) -> list[Buffer]:
    """The payload of an ERROR."""
    return [msgspec.msgpack.encode(problem)]


def decode_problem(payload: Buffer) -> Problem:
    """Why another stage could not; its text comes from another Mac and is cleaned here. Raises ProtocolError."""
    try:
        told = _problem.decode(payload)
    except UNREADABLE as error:
        raise ProtocolError("An error frame does not decode.") from error
    kind, what, fix = (clean_text(text)[:TEXT_LIMIT] for text in (told.kind, told.what, told.fix))
    return Problem(kind=kind, what=what, fix=fix)


class Standing(msgspec.Struct, frozen=True, array_like=True):
    """What the head asks round a ring whose links are new: does everybody know `run`, and has done all steps below
    `base`? Stages that do not, begin anew with step `base` and add their number to `lost`.
    """

    run: bytes
    base: int
    lost: tuple[int, ...] = ()


_standing = msgspec.msgpack.Decoder(Standing)


def encode_standing(standing: Standing) -> bytes:
    """The body of a STANDING frame."""
    return msgspec.msgpack.encode(standing)


def decode_standing(frame: Frame) -> Standing:
    """What a STANDING frame says. Raises ProtocolError."""
    try:
        return _standing.decode(frame.body)
    except UNREADABLE as error:
        raise ProtocolError("A standing frame does not decode.") from error
