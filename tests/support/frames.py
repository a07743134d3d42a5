"""Frame headers as bytes of their own."""

from __future__ import annotations

from core.link.frames import HEADER, FrameHeader, pack_into


def pack(header: FrameHeader) -> bytes:
    buffer = bytearray(HEADER.size)
    pack_into(buffer, 0, header)
    return bytes(buffer)
