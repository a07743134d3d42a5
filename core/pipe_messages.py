"""Messages between a node and its child processes over a pipe: length as u32 little-endian, then one msgpack value."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from asyncio import StreamReader  # a worker, which reads in a thread, does not import it

LENGTH: Final = struct.Struct("<I")
MAX_MESSAGE: Final = 64 << 20
READ_BYTES: Final = 64 << 10

_encoder = msgspec.msgpack.Encoder()


def pack(message: msgspec.Struct) -> bytes:
    body = _encoder.encode(message)
    return LENGTH.pack(len(body)) + body


def write_message(fd: int, message: msgspec.Struct) -> None:
    data = memoryview(pack(message))
    while data:
        data = data[os.write(fd, data) :]


def split(arrived: bytearray) -> Iterator[bytes]:
    """Take the complete messages off the front of `arrived`. Raises msgspec.ValidationError if one is too long."""
    while len(arrived) >= LENGTH.size:
        end = LENGTH.size + _checked(*LENGTH.unpack_from(arrived))
        if len(arrived) < end:
            return
        body = bytes(memoryview(arrived)[LENGTH.size : end])
        del arrived[:end]
        yield body


def read_messages(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """Messages from a blocking pipe, until it ends; `read` returns up to that many bytes. Raises
    msgspec.ValidationError if one is too long.
    """
    arrived = bytearray()
    while part := read(READ_BYTES):
        arrived += part
        yield from split(arrived)


async def read_message(stream: StreamReader) -> bytes:
    """The next message. Raises asyncio.IncompleteReadError at the pipe's end, msgspec.ValidationError if too long."""
    return await stream.readexactly(_checked(*LENGTH.unpack(await stream.readexactly(LENGTH.size))))


def _checked(length: int) -> int:
    if length > MAX_MESSAGE:
        raise msgspec.ValidationError("It is too long.")
    return length
