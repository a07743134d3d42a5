"""Pieces of requests relayed to the Mac that leads; `relayed_values` puts them together."""

from __future__ import annotations

import struct
from typing import ClassVar, Final, Self

from core.errors import ProtocolError
from core.link.frames import FrameType
from core.node.base.node_message import PIECE_BYTES, UNLIMITED, BinaryMessage, NodeMessage
from core.numbers import MOST, Size

_PIECE: Final = struct.Struct("<BQ")  # mark, number


class RelayPiece(BinaryMessage, frozen=True, kw_only=True):
    """Base of pieces. They aren't JSON, as texts travel unchanged."""

    MARK: ClassVar[int]  # first byte; one more in the last piece
    number: Size  # of the request, on the requesting Mac
    data: bytes
    is_last: bool

    def to_body(self) -> bytes:
        return _PIECE.pack(self.MARK + self.is_last, self.number) + self.data

    @classmethod
    def from_body(cls, body: bytes) -> Self:
        if _PIECE.size < len(body) <= _PIECE.size + PIECE_BYTES:
            mark, number = _PIECE.unpack_from(body)
            if mark - cls.MARK in (0, 1) and number <= MOST:
                return cls(number=number, data=body[_PIECE.size :], is_last=mark != cls.MARK)
        raise ProtocolError(f"{len(body)} bytes are no piece of a relayed request.")


class RelayRequest(RelayPiece, frozen=True, kw_only=True, tag="RelayRequest"):
    """A piece of a program's request, for the Mac that leads."""

    FRAME: ClassVar = FrameType.RELAY_ASK
    MARK: ClassVar = 0xA0


class RelayReply(RelayPiece, frozen=True, kw_only=True, tag="RelayReply"):
    """A piece of the reply to a RelayRequest."""

    FRAME: ClassVar = FrameType.RELAY_REPLY
    RATE: ClassVar = UNLIMITED
    MARK: ClassVar = 0xB0


class RelayStop(NodeMessage, frozen=True, kw_only=True, tag="RelayStop"):
    """Cancels a relayed request: the program that made it is gone."""

    FRAME: ClassVar = FrameType.CANCEL
    number: Size
