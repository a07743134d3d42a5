"""Base types of messages between nodes; each room declares its own in its `messages.py`."""

from __future__ import annotations

from math import inf
from typing import Annotated, ClassVar, Final, Self

import msgspec

from core.link.frames import FrameType
from core.rates import Rate

MAX_MODEL_NAME: Final = 96
PIECE_BYTES: Final = 48 * 1024  # of binary data in one message: below MAX_CONTROL_BODY

Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
DeviceId = Annotated[str, msgspec.Meta(max_length=26)]
FileName = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
ModelName = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_MODEL_NAME)]

BEATS: Final = Rate(20.0, 40.0)  # an honest Mac sends two pings a second
COMMON: Final = Rate(500.0, 1000.0)
UNLIMITED: Final = Rate(inf, inf)  # for replies: what was requested bounds them

_encoder = msgspec.json.Encoder()


class NodeMessage(msgspec.Struct, frozen=True, kw_only=True, tag=""):
    """Base of all messages between nodes. They travel as JSON, unless they are `BinaryMessage`s. Each writes out its
    tag, so that a class can be renamed.

    Example:
        class Hello(NodeMessage, frozen=True, kw_only=True, tag="Hello"):
            FRAME: ClassVar = FrameType.TELEMETRY
            text: str
    """

    FRAME: ClassVar[FrameType]
    RATE: ClassVar[Rate] = COMMON  # the same in all messages of one frame type

    def to_body(self) -> bytes:
        return _encoder.encode(self)


class BinaryMessage(NodeMessage, frozen=True, kw_only=True):
    """Base of messages that aren't JSON. Each is the only message of its frame type."""

    @classmethod
    def from_body(cls, body: bytes) -> Self:
        raise NotImplementedError


def in_pieces(data: bytes, size: int = 300) -> tuple[bytes, ...]:
    """Split into pieces: a text in a message between nodes has at most 500 characters."""
    return tuple(data[at : at + size] for at in range(0, len(data), size))


def to_frame(message: NodeMessage) -> tuple[FrameType, bytes]:
    return message.FRAME, message.to_body()
