"""Accepts HTTP clients, with or without TLS, up to a limit."""

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

MAX_CLIENTS: Final = 512
BACKLOG: Final = 128
HANDSHAKE_S: Final = 10.0
SILENT_S: Final = 30.0  # a client that sends no request for this long is disconnected


class Listener:
    """Accepts clients; if there are too many, the oldest that has sent no request is disconnected."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = MAX_CLIENTS if soft == resource.RLIM_INFINITY else min(MAX_CLIENTS, soft // 4)
        self._clients: dict[
            asyncio.BaseTransport, bool
        ] = {}  # whether it has sent a request; in the order of connecting
        self._entering = 0
        self._serving: asyncio.Task[None] | None = None

    def start(self, options: ApiOptions, server: web.Server, context: ssl.SSLContext | None) -> int:
        """Listen; returns the port. Raises NodeError."""
        try:
            family, *_, place = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)[0]
            listener = socket.create_server(place[:2], family=family, backlog=BACKLOG)
        except OSError as error:
            why = error.strerror or str(error)
            if error.errno == errno.EADDRINUSE:
                why = f"the port is in use by {port_holder(options.port)}"
            what = f"The API can't be served at {options.host}:{options.port}: {why}."
            raise NodeError(what, f"Choose another port: {options.port_option}.") from error
        listener.setblocking(False)
        self._serving = self._tasks.essential("The API", lambda: self._serve(listener, server, context))
        self._serving.add_done_callback(lambda _: listener.close())
        return int(listener.getsockname()[1])

    def stop(self) -> None:
        if self._serving:
            self._serving.cancel()

    @web.middleware
    async def note(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Remember that this client has sent a request."""
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
            self._tasks.spawn("An API client", self._enter(sock, server, context))

    async def _enter(self, sock: socket.socket, server: web.Server, context: ssl.SSLContext | None) -> None:
        loop, timeout = asyncio.get_running_loop(), HANDSHAKE_S if context else None
        try:
            transport, _ = await loop.connect_accepted_socket(server, sock, ssl=context, ssl_handshake_timeout=timeout)
        except OSError:  # a client that speaks no TLS, or does not trust this certificate
            sock.close()
            return
        finally:
            self._entering -= 1
        self._clients.setdefault(transport, False)
        await asyncio.sleep(SILENT_S)
        if self._clients.get(transport) is False:
            transport.abort()

    def _look(self) -> None:
        self._clients = {client: asked for client, asked in self._clients.items() if not client.is_closing()}

    def _make_room(self) -> bool:
        idle = next((client for client, asked in self._clients.items() if not asked), None)
        if idle:
            del self._clients[idle]
            with suppress(OSError):
                idle.close()
        return idle is not None
