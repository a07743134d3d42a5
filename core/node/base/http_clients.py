"""Clients of an HTTP server: how many may be connected, and which one is dropped for the next."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import suppress
from socket import socket

from aiohttp import web
from aiohttp.typedefs import Handler

from core.link.accept_loop import accept_connections


class HttpClients:
    """Clients in order of connecting. For a new one, the first that has sent no request is dropped."""

    def __init__(self, most: int, share: int) -> None:
        """At most `most` clients, and at most 1/`share` of the file descriptors that this process may open."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.most = most if soft == resource.RLIM_INFINITY else min(most, soft // share)
        self.entering = 0  # accepted, still in a handshake
        self._has_asked: dict[asyncio.BaseTransport, bool] = {}

    async def accept(self, listener: socket) -> AsyncIterator[socket]:
        async for sock, _ in accept_connections(listener, self._make_room):
            self._forget_closed()
            if len(self._has_asked) + self.entering >= self.most and not self._make_room():
                sock.close()
                continue
            yield sock

    def entered(self, client: asyncio.BaseTransport) -> None:
        self._has_asked.setdefault(client, False)

    def is_idle(self, client: asyncio.BaseTransport) -> bool:
        return self._has_asked.get(client) is False

    def asking(self) -> int:
        self._forget_closed()
        return sum(self._has_asked.values())

    @web.middleware
    async def note(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.transport:
            self._has_asked[request.transport] = True
        return await handler(request)

    def _forget_closed(self) -> None:
        self._has_asked = {client: asked for client, asked in self._has_asked.items() if not client.is_closing()}

    def _make_room(self) -> bool:
        idle = next((client for client, asked in self._has_asked.items() if not asked), None)
        if idle:
            del self._has_asked[idle]
            with suppress(OSError):
                idle.close()
        return idle is not None
