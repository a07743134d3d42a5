"""Who is connected to the local API, and how many may be: a node needs file descriptors for more than that."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from core.errors import Busy
from core.link.accept_loop import accept_connections

MOST: Final = 128
SPARE: Final = 8  # for those who are told that all others are taken

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class LocalClients:
    """Each asks once. Who has connected first and asked nothing yet makes room for the next one; who has asked stays
    until he is answered.
    """

    def __init__(self) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = MOST if soft == resource.RLIM_INFINITY else min(MOST, soft // 2)
        self._asked: dict[asyncio.BaseTransport, bool] = {}  # of all who are connected, in the order of connecting

    async def serve(self, listener: socket.socket, server: web.Server) -> None:
        """Let them in, for ever."""
        async for sock, _ in accept_connections(listener, self._make_room):
            self._look()
            if len(self._asked) >= self._most and not self._make_room():
                sock.close()
                continue
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(server, sock)
            self._asked.setdefault(transport, False)

    @web.middleware
    async def admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Raises Busy where as many requests as there may be are under way."""
        self._look()
        if request.transport:
            self._asked[request.transport] = True
        if sum(self._asked.values()) > self._most - SPARE:
            what = "As many clients as there may be are asking the node of this Mac already."
            raise Busy(what, "End some of them, then ask again.")
        return await handler(request)

    def _look(self) -> None:
        """Forget who is gone."""
        self._asked = {client: asked for client, asked in self._asked.items() if not client.is_closing()}

    def _make_room(self) -> bool:
        idle = next((client for client, asked in self._asked.items() if not asked), None)
        if idle:
            del self._asked[idle]
            idle.close()
        return idle is not None
