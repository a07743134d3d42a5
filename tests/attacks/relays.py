"""Attackers on the wire between two Macs: one ends TLS on both sides, one changes bytes below TLS."""

from __future__ import annotations

import asyncio
import random
import ssl
from contextlib import suppress
from typing import Literal

from tests.attacks.victim import HOST

Way = Literal["up", "down"]


class Session:
    """The records of one connection, and the record to change."""

    def __init__(self, aim: tuple[Way, int] | None) -> None:
        self.aim = aim
        self.records: dict[Way, list[bytes]] = {"up": [], "down": []}


class _Relay:
    """Listens, calls `target` for each connection, and leaves nothing open; subclasses handle the bytes."""

    def __init__(self, target: int, near: ssl.SSLContext | None = None, far: ssl.SSLContext | None = None) -> None:
        self._target, self._near, self._far = target, near, far
        self._calls: set[asyncio.Task[None]] = set()
        self.aim: tuple[Way, int] | None = None
        self.last = Session(None)

    async def __aenter__(self) -> int:
        """Listen; returns the port to dial."""
        self._server = await asyncio.start_server(self._call, HOST, 0, ssl=self._near)
        return int(self._server.sockets[0].getsockname()[1])

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        await self._server.wait_closed()

    async def _call(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._calls.add(task)
        writers, ways = [writer], list[asyncio.Task[None]]()
        try:
            name = "macluster" if self._far else None
            back, forth = await asyncio.open_connection(HOST, self._target, ssl=self._far, server_hostname=name)
            writers.append(forth)
            self.last = session = Session(self.aim)
            ways += [
                asyncio.create_task(self._carry(reader, forth, "up", session)),
                asyncio.create_task(self._carry(back, writer, "down", session)),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            pass  # the other end is gone
        finally:
            for each in writers:
                each.transport.abort()
                with suppress(OSError):
                    await each.wait_closed()
            await asyncio.gather(*ways, return_exceptions=True)
            self._calls.discard(task)

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way, session: Session
    ) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await self._pass(reader, writer, way, session)

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way, session: Session
    ) -> None:
        raise NotImplementedError


class Middle(_Relay):
    """Shows one leaf to the dialler, another to the target, and passes on every byte in between."""

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way, session: Session
    ) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


class Meddler(_Relay):
    """Changes one bit of one TLS record per session, below TLS; `last` keeps the records."""

    def __init__(self, target: int, seed: int = 0) -> None:
        super().__init__(target)
        self._random = random.Random(seed)
        self.hits = 0

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way, session: Session
    ) -> None:
        while True:
            head = await reader.readexactly(5)
            body = bytearray(await reader.readexactly(int.from_bytes(head[3:], "big")))
            if session.aim == (way, len(session.records[way])):
                self.hits += 1
                body[self._random.randrange(len(body))] ^= 1 << self._random.randrange(8)
            session.records[way].append(head + bytes(body))
            writer.write(head + bytes(body))
            await writer.drain()
