"""Work frames: the work that a frame belongs to, and its payload.

body = step u64 | base u64 | handle u32 | askers u16 | askers x 16 | payload. `base` is the lowest step that the head
still waits for: it never requests a lower one again. The payload is token ids (PROMPT_TOKENS, STEP_TOKEN; none if the
group of ranks distributes the last step's choices), the arrays of a boundary or of logits (ACTIVATION), chosen tokens
(TOKEN), the operations of a composition (COMPOSE), a cache part (KV), a stage's reason for a failure (ERROR), or
nothing (ACK).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from core.engine.requests import ID_BYTES, Admit, RequestId
from core.engine.ring_work import Handle, Op
from core.errors import Problem, ProtocolError
from core.link.data_plane import Frame
from core.link.frames import Buffer, Flag, FrameType
from core.numbers import Size, TokenId
from core.requests.trace import TurnKind
from core.text import clean_text

WORK: Final = struct.Struct("<QQIH")
TOKEN_TYPES: Final = frozenset({FrameType.PROMPT_TOKENS, FrameType.STEP_TOKEN})
WORK_TYPES: Final = TOKEN_TYPES | {
    FrameType.ACTIVATION,
    FrameType.TOKEN,
    FrameType.COMPOSE,
    FrameType.KV,
    FrameType.ACK,
    FrameType.ERROR,
}
_T = TypeVar("_T")
TEXT_LIMIT: Final = 500
NO_REQUEST: Final = bytes(16)
NO_STEP: Final = 0  # an ERROR that belongs to no work: the ring breaks
QUIET: Final = int(Flag.PREFILL)
EVERY: Final = int(Flag.EVERY)

# msgspec's errors for bytes that no honest peer sends
UNREADABLE: Final = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


class Wrote(msgspec.Struct, frozen=True, array_like=True, tag="Wrote"):
    """The next written tokens of the answer of row `request`, which has a constraint, before it continues."""

    request: RequestId
    tokens: tuple[TokenId, ...]


class Dismiss(msgspec.Struct, frozen=True, array_like=True, tag="Dismiss"):
    """Row `request` is over."""

    request: RequestId


class Begin(msgspec.Struct, frozen=True, array_like=True, tag="Begin"):
    """No request ran: figures count from here."""


Word = Admit | Wrote | Dismiss | Begin
Order = Op | Word


class _Failure(Problem, frozen=True, kw_only=True):
    handles: tuple[Handle, ...] = ()  # useless after it


_orders = msgspec.msgpack.Decoder(tuple[Order, ...])
_failure = msgspec.msgpack.Decoder(_Failure)


class WorkFrame(NamedTuple):
    """A message from one stage to the next for step `step`; it can be sent repeatedly."""

    kind: FrameType
    step: int
    handle: int = 0
    request: bytes = NO_REQUEST  # whose prompt it is; zeros if it has rows of several requests
    position: int = 0  # tokens that the handle was given before
    rows: int = 0  # positions of all its rows in the payload
    quiet: bool = False  # no logits are needed, so a last stage without layers after it answers with an ACK
    every: bool = False  # logits of every position are wanted
    askers: tuple[bytes, ...] = ()  # rows for which the last stage chooses tokens, if it does
    payload: Sequence[Buffer] = ()

    def parts(self, base: int) -> list[Buffer]:
        return [WORK.pack(self.step, base, self.handle, len(self.askers)), *self.askers, *self.payload]

    @property
    def flags(self) -> int:
        return QUIET * self.quiet | EVERY * self.every


def kind_of(work: WorkFrame) -> TurnKind:
    match work.kind:
        case FrameType.COMPOSE:
            return "compose"
        case FrameType.KV | FrameType.ERROR:
            return "other"
        case _:
            return "chunk" if work.quiet else "step"


def read_work(frame: Frame) -> tuple[WorkFrame, int]:
    """The work frame and its base; the payload is a view that is valid until the next frame. Raises ProtocolError."""
    header, body = frame
    if len(body) < WORK.size:
        raise ProtocolError(f"Frame 0x{header.type:02x} is too short to say which step it belongs to.")
    step, base, handle, count = WORK.unpack_from(body)
    payload = WORK.size + count * ID_BYTES
    if len(body) < payload:
        raise ProtocolError(f"Frame 0x{header.type:02x} is too short for its {count} rows.")
    askers = tuple(bytes(body[at : at + ID_BYTES]) for at in range(WORK.size, payload, ID_BYTES))
    rest, quiet, every = (body[payload:],), bool(header.flags & QUIET), bool(header.flags & EVERY)
    place = (step, handle, header.request_id, header.pos, header.rows)
    return WorkFrame(header.type, *place, quiet, every, askers, rest), base


def decoded(decode: Callable[[Buffer], _T], payload: Buffer, what: str) -> _T:
    """The value in a payload. Raises ProtocolError, naming it as `what`."""
    try:
        return decode(payload)
    except UNREADABLE as error:
        raise ProtocolError(f"{what} does not decode.") from error


def encode_orders(orders: Sequence[Order]) -> list[Buffer]:
    return [msgspec.msgpack.encode(tuple(orders))]


def decode_orders(payload: Buffer) -> tuple[Order, ...]:
    return decoded(_orders.decode, payload, "A composition")


def encode_problem(problem: Problem, handles: Sequence[int] = ()) -> list[Buffer]:
    """The payload of an ERROR; `handles` are useless after it."""
    told = _Failure(kind=problem.kind, what=problem.what, fix=problem.fix, handles=tuple(handles))
    return [msgspec.msgpack.encode(told)]


def decode_problem(payload: Buffer) -> tuple[Problem, tuple[int, ...]]:
    """A stage's reason for a failure, cleaned, and the handles useless after it. Raises ProtocolError."""
    told = decoded(_failure.decode, payload, "An error frame")
    kind, what, fix = (clean_text(text)[:TEXT_LIMIT] for text in (told.kind, told.what, told.fix))
    return Problem(kind=kind, what=what, fix=fix), told.handles


class ResumeState(msgspec.Struct, frozen=True, array_like=True):
    """The head's request round a relinked ring: does each stage know `run`, and has it done all steps below `base`?
    Stages that fail this start over at step `base` and add their number to `lost`.
    """

    run: bytes
    base: Size
    lost: tuple[Size, ...] = ()


_resume_state = msgspec.msgpack.Decoder(ResumeState)


def encode_resume_state(state: ResumeState) -> bytes:
    return msgspec.msgpack.encode(state)


def decode_resume_state(frame: Frame) -> ResumeState:
    return decoded(_resume_state.decode, frame.body, "A resume frame")
