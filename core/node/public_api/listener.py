"""HTTP at an address, in clear or over TLS, for a bounded number of clients, none of whom may be silent for long."""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
import ssl
from contextlib import suppress
from typing import Final

from aiohttp import web

from core.errors import NodeError
from core.link.accept_loop import accept_connections
from core.mac.port_holder import port_holder
from core.node.base.tasks import Tasks
from core.node.config import ApiOptions
from core.node.public_api.http_bodies import Handler

MOST: Final = 512
BACKLOG: Final = 128
HANDSHAKE_S: Final = 10.0
SILENT_S: Final = 30.0  # so long may a client say nothing before he asks


class Listener:
    """Who has connected first and asked nothing yet makes room for the next one."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = MOST if soft == resource.RLIM_INFINITY else min(MOST, soft // 4)
        self._clients: dict[asyncio.BaseTransport, bool] = {}  # whether they have asked, in the order of connecting
        self._entering = 0
        self._serving: asyncio.Task[None] | None = None

    def start(self, options: ApiOptions, server: web.Server, context: ssl.SSLContext | None) -> int:
        """Listen; the port. Raises NodeError where that is not possible."""
        try:
            family, *_, place = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)[0]
            listener = socket.create_server(place[:2], family=family, backlog=BACKLOG)
        except OSError as error:
            why = error.strerror or str(error)
            if error.errno == errno.EADDRINUSE:
                why = f"the port is taken by {port_holder(options.port)}"
            what = f"The API cannot be served at {options.host}:{options.port}: {why}."
            raise NodeError(what, f"Take another one: {options.port_option}.") from error
        listener.setblocking(False)
        self._serving = self._tasks.essential("The API", lambda: self._serve(listener, server, context))
        self._serving.add_done_callback(lambda _: listener.close())
        return int(listener.getsockname()[1])

    def stop(self) -> None:
        """Let nobody in any more."""
        if self._serving:
            self._serving.cancel()

    @web.middleware
    async def note(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """He has asked."""
        if request.transport:
            self._clients[request.transport] = True
        return await handler(request)

    async def _serve(self, listener: socket.socket, server: web.Server, context: ssl.SSLContext | None) -> None:
        async for sock, _ in accept_connections(listener, self._make_room):
            self._look()
            if len(self._clients) + self._entering >= self._most and not self._make_room():
                sock.close()
                continue
            self._entering += 1
            self._tasks.spawn("A client of the API", self._enter(sock, server, context))

    async def _enter(self, sock: socket.socket, server: web.Server, context: ssl.SSLContext | None) -> None:
        loop, timeout = asyncio.get_running_loop(), HANDSHAKE_S if context else None
        try:
            transport, _ = await loop.connect_accepted_socket(server, sock, ssl=context, ssl_handshake_timeout=timeout)
        except OSError:  # who knows no TLS, or does not trust this certificate
            sock.close()
            return
        finally:
            self._entering -= 1
        self._clients.setdefault(transport, False)
        await asyncio.sleep(SILENT_S)
        if self._clients.get(transport) is False:
            transport.abort()

    def _look(self) -> None:
        """Forget who is gone."""
        self._clients = {client: asked for client, asked in self._clients.items() if not client.is_closing()}

    def _make_room(self) -> bool:
        idle = next((client for client, asked in self._clients.items() if not asked), None)
        if idle:
            del self._clients[idle]
            with suppress(OSError):
                idle.close()
        return idle is not None
