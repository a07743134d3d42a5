"""`python -m tests.chaos.meddling`: relays connections that the firewall redirects here, and spoils a TLS record on
command.

Commands on standard input: flip, duplicate, reorder, truncate. It prints its port, and the result when asked.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import sys
from contextlib import suppress
from time import monotonic
from typing import Final

import msgspec

HEAD: Final = 5
APPLICATION: Final = 23
SETTLED: Final = 6  # records of application data in the handshake, at most
ORIGINAL_DESTINATION: Final = 80  # SO_ORIGINAL_DST
SECOND_S: Final = 1.0


class Meddling:
    """Relays connections. `armed`: the fault for the next record."""

    def __init__(self) -> None:
        self.armed = ""
        self._dice = random.Random(1)
        self._faults = 0
        self._closed_s = 0.0

    def take(self) -> bytes:
        """The faults since the last call."""
        told = msgspec.json.encode({"faults": self._faults, "closed_s": self._closed_s})
        self._faults, self._closed_s = 0, 0.0
        return told

    async def call(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one connection to its original destination."""
        raw = writer.get_extra_info("socket").getsockopt(socket.SOL_IP, ORIGINAL_DESTINATION, 16)
        port, address = struct.unpack_from("!2xH4s", raw)
        with suppress(OSError, asyncio.IncompleteReadError):
            back, forth = await asyncio.open_connection(socket.inet_ntoa(address), port)
            hit: list[float] = []
            down = asyncio.create_task(self._down(back, writer, hit))
            try:
                await self._up(reader, forth, hit)
            finally:
                if not hit:
                    forth.transport.abort()
                await down
                forth.transport.abort()
                writer.transport.abort()
        writer.transport.abort()

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hit: list[float]) -> None:
        passed = 0
        while True:
            record = await _record(reader)
            passed += record[0] == APPLICATION
            fault = self.armed if passed > SETTLED and record[0] == APPLICATION else ""
            if fault:
                self.armed = ""
                records = await self._spoil(fault, record, reader)
                self._faults += 1
                hit.append(monotonic())
            else:
                records = [record]
            writer.write(b"".join(records))
            await writer.drain()

    async def _spoil(self, fault: str, record: bytes, reader: asyncio.StreamReader) -> list[bytes]:
        if fault == "flip":
            spoilt = bytearray(record)
            spoilt[HEAD + self._dice.randrange(len(record) - HEAD)] ^= 1 << self._dice.randrange(8)
            return [bytes(spoilt)]
        if fault == "duplicate":
            return [record, record]
        following = await asyncio.wait_for(_record(reader), SECOND_S)
        return [following, record] if fault == "reorder" else [record[:-SETTLED], following]

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hit: list[float]) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        if hit:
            self._closed_s = max(self._closed_s, monotonic() - hit[-1])
        writer.transport.abort()


async def _record(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(HEAD)
    return head + await reader.readexactly(int.from_bytes(head[3:], "big"))


async def main() -> None:
    """Serve until standard input ends."""
    meddling = Meddling()
    server = await asyncio.start_server(meddling.call, "0.0.0.0", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
        if line == "tell":
            print(meddling.take().decode(), flush=True)
        else:
            meddling.armed = line
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
