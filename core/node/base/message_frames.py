"""How messages between nodes travel: JSON in sealed control frames, bytes where there are many."""

from __future__ import annotations

import struct
from typing import Any, Final, TypeVar

import msgspec

from core.errors import ProtocolError
from core.link.frames import FrameType
from core.node.base.file_messages import (
    MAX_HASHES,
    NOT_HERE,
    BytesAsk,
    BytesReady,
    CopyAsk,
    CopyChange,
    CopyProgress,
    CopyWord,
    FalseFile,
    FilesAsk,
    FilesSent,
    FileWord,
    HashesAsk,
    HashesSent,
    Holds,
    HoldsAsk,
)
from core.node.base.messages import (
    PIECE_BYTES,
    Bye,
    Checked,
    ClockAsk,
    ClockReply,
    KeyChange,
    KeyRefused,
    LinkProbe,
    LinkUp,
    LogAsk,
    LogReply,
    LogWord,
    NodeMessage,
    Ping,
    Pong,
    Prepared,
    PrepareStage,
    Probed,
    RelayAsk,
    RelayReply,
    RelayStop,
    RelayWord,
    Release,
    Reported,
    SpeedAsk,
    SpeedMoved,
    SpeedResultSent,
    SpeedStop,
    SpeedWord,
    StageLost,
    StageWord,
    TraceAsk,
    TraceReply,
    TraceWord,
)
from core.numbers import MOST
from core.text import clean_text

TEXT_LIMIT: Final = 500

AnyMessage = (
    Ping
    | Pong
    | PrepareStage
    | LinkUp
    | Release
    | KeyChange
    | KeyRefused
    | Bye
    | StageWord
    | SpeedWord
    | Holds
    | HoldsAsk
    | FileWord
    | CopyWord
    | FalseFile
    | RelayWord
    | RelayReply
    | TraceWord
    | LogWord
)

FRAMES: Final[dict[type[NodeMessage], FrameType]] = {
    Ping: FrameType.PING,
    Pong: FrameType.PONG,
    PrepareStage: FrameType.PLAN,
    Prepared: FrameType.PLAN,
    Checked: FrameType.PLAN,
    LinkUp: FrameType.PLAN,
    Reported: FrameType.PLAN,
    StageLost: FrameType.ERROR,
    Release: FrameType.PLAN,
    KeyChange: FrameType.KEY_CHANGE,
    KeyRefused: FrameType.KEY_CHANGE,
    LinkProbe: FrameType.PROBE,
    Probed: FrameType.SPEED_TEST,
    SpeedAsk: FrameType.SPEED_TEST,
    SpeedMoved: FrameType.SPEED_TEST,
    SpeedResultSent: FrameType.SPEED_TEST,
    SpeedStop: FrameType.SPEED_TEST,
    Holds: FrameType.MODEL_INVENTORY,
    HoldsAsk: FrameType.MODEL_INVENTORY,
    FilesAsk: FrameType.COPY,
    FilesSent: FrameType.COPY,
    HashesAsk: FrameType.COPY,
    HashesSent: FrameType.FILE_PART,
    BytesAsk: FrameType.COPY,
    BytesReady: FrameType.COPY,
    CopyAsk: FrameType.COPY,
    CopyChange: FrameType.COPY,
    CopyProgress: FrameType.COPY,
    FalseFile: FrameType.COPY,
    RelayAsk: FrameType.RELAY_ASK,
    RelayReply: FrameType.RELAY_REPLY,
    RelayStop: FrameType.CANCEL,
    ClockAsk: FrameType.TELEMETRY,
    ClockReply: FrameType.TELEMETRY,
    TraceAsk: FrameType.TELEMETRY,
    TraceReply: FrameType.TELEMETRY,
    LogAsk: FrameType.LOG,
    LogReply: FrameType.LOG,
    Bye: FrameType.BYE,
}

_Piece = TypeVar("_Piece", RelayAsk, RelayReply)
_MARKS: Final = {RelayAsk: 0xA0, RelayReply: 0xB0}  # one more in the last piece

_encoder = msgspec.json.Encoder()
_PROBE: Final = struct.Struct("<II")
_HASHES: Final = struct.Struct("<QI")
_PIECE: Final = struct.Struct("<BQ")


def _clean(value: Any) -> Any:
    """Every text in a message of another Mac without what could drive a terminal: the one place where it comes in."""
    match value:
        case str():
            return clean_text(value)[:TEXT_LIMIT]
        case list():
            return [_clean(v) for v in value]
        case dict():
            return {_clean(k): _clean(v) for k, v in value.items()}
        case _:
            return value


def to_frame(message: AnyMessage) -> tuple[FrameType, bytes]:
    """Frame type and body of a message."""
    if isinstance(message, LinkProbe):
        return FrameType.PROBE, _PROBE.pack(message.number, message.size) + bytes(message.size)
    if isinstance(message, HashesSent):
        return FrameType.FILE_PART, _HASHES.pack(message.number, len(message.data)) + message.data
    if isinstance(message, RelayAsk | RelayReply):
        mark = _MARKS[type(message)] + message.is_last
        return FRAMES[type(message)], _PIECE.pack(mark, message.number) + message.data
    return FRAMES[type(message)], _encoder.encode(message)


def from_frame(kind: FrameType, body: bytes) -> AnyMessage:
    """The message of a frame; raises ProtocolError."""
    if kind is FrameType.PROBE:
        return _probe(body)
    if kind is FrameType.FILE_PART:
        return _hashes(body)
    if kind is FrameType.RELAY_ASK:
        return _piece(RelayAsk, body)
    if kind is FrameType.RELAY_REPLY:
        return _piece(RelayReply, body)
    try:
        message: AnyMessage = msgspec.convert(_clean(msgspec.json.decode(body)), AnyMessage)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ProtocolError(f"A control frame of type 0x{kind:02x} does not decode.") from error
    if FRAMES[type(message)] != kind:
        raise ProtocolError(f"A {type(message).__name__} came in a frame of type 0x{kind:02x}.")
    return message


def _probe(body: bytes) -> LinkProbe:
    if len(body) >= _PROBE.size:
        number, size = _PROBE.unpack_from(body)
        if size == len(body) - _PROBE.size:
            return LinkProbe(number=number, size=size)
    raise ProtocolError(f"A probe of {len(body)} bytes does not hold what it says.")


def _hashes(body: bytes) -> HashesSent:
    if len(body) >= _HASHES.size:
        number, length = _HASHES.unpack_from(body)
        if number <= MOST and length == len(body) - _HASHES.size <= MAX_HASHES * len(NOT_HERE):
            return HashesSent(number=number, data=body[_HASHES.size :])
    raise ProtocolError(f"Hashes of {len(body)} bytes are not what they say.")


def _piece(kind: type[_Piece], body: bytes) -> _Piece:
    if _PIECE.size < len(body) <= _PIECE.size + PIECE_BYTES:
        mark, number = _PIECE.unpack_from(body)
        if mark - _MARKS[kind] in (0, 1) and number <= MOST:
            return kind(number=number, data=body[_PIECE.size :], is_last=mark != _MARKS[kind])
    raise ProtocolError(f"A piece of a relayed request of {len(body)} bytes is no such thing.")
