"""Clients of an HTTP server: their limits, how many may be connected, and which one is dropped for the next."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from socket import socket
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Handler

from core.link.accept_loop import accept_connections

# every limit that aiohttp has for a connection
LIMITS: Final[dict[str, Any]] = {
    "keepalive_timeout": 75.0,  # seconds between two requests
    "lingering_time": 10.0,  # seconds to read the rest of a body that nothing takes
    "timeout_ceil_threshold": 5.0,  # seconds; longer timeouts are rounded up
    "max_line_size": 8190,  # bytes of the first line
    "max_field_size": 8190,  # bytes of a header
    "max_headers": 128,
    "read_bufsize": 1 << 18,  # bytes of a body that wait to be read
    "tcp_keepalive": True,
    "auto_decompress": True,  # to `client_max_size` bytes at most
}


class ClientState(IntEnum):
    """Why a client holds its place; the lowest is dropped first."""

    UNPROVEN = 0  # it has sent no request that was let in
    IDLE = 1
    ASKING = 2


class HttpClients:
    """Clients in order of connecting. For a new one, the first is dropped that has proved nothing, else an idle one."""

    def __init__(self, most: int, share: int) -> None:
        """At most `most` clients, and at most 1/`share` of the file descriptors that this process may open."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.most = most if soft == resource.RLIM_INFINITY else min(most, soft // share)
        self._entering: dict[asyncio.Task[None], None] = {}  # accepted, still in a handshake
        self._places: dict[asyncio.BaseTransport, ClientState] = {}

    async def accept(self, listener: socket) -> AsyncIterator[socket]:
        async for sock, _ in accept_connections(listener, self._make_room):
            self._forget_closed()
            if len(self._places) + len(self._entering) >= self.most and not self._make_room():
                sock.close()
                continue
            yield sock

    def enters(self, task: asyncio.Task[None]) -> None:
        """Note a handshake in `task`, until `entered` or its end."""
        self._entering[task] = None
        task.add_done_callback(lambda _: self._entering.pop(task, None))

    def entered(self, client: asyncio.BaseTransport) -> None:
        if task := asyncio.current_task():
            self._entering.pop(task, None)
        self._places.setdefault(client, ClientState.UNPROVEN)

    def is_unproven(self, client: asyncio.BaseTransport) -> bool:
        return self._places.get(client) is ClientState.UNPROVEN

    def asking(self) -> int:
        self._forget_closed()
        return sum(place is ClientState.ASKING for place in self._places.values())

    @contextmanager
    def let_in(self, request: web.Request) -> Iterator[None]:
        """Keep the place of a client while the block answers its request."""
        client = request.transport
        if client:
            self._places[client] = ClientState.ASKING
        try:
            yield
        finally:
            if client in self._places:
                self._places[client] = ClientState.IDLE

    @web.middleware
    async def let_all_in(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        with self.let_in(request):
            return await handler(request)

    def _forget_closed(self) -> None:
        self._places = {client: place for client, place in self._places.items() if not client.is_closing()}

    def _make_room(self) -> bool:
        client = min(self._places, key=self._places.__getitem__, default=None)
        if client and self._places[client] is ClientState.UNPROVEN:
            self._drop(client)
        elif self._entering:
            task = next(iter(self._entering))
            del self._entering[task]
            task.cancel()
        elif client and self._places[client] is ClientState.IDLE:
            self._drop(client)
        else:
            return False
        return True

    def _drop(self, client: asyncio.BaseTransport) -> None:
        del self._places[client]
        with suppress(OSError):
            client.close()
