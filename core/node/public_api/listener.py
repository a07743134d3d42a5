"""Accepts HTTP clients, with or without TLS, up to a limit."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from typing import Final

from aiohttp import web

from core.errors import NodeError
from core.mac.port_holder import port_holder
from core.node.base.http_clients import HttpClients
from core.node.base.tasks import Tasks
from core.node.config import ApiOptions

MAX_CLIENTS: Final = 512
BACKLOG: Final = 128
HANDSHAKE_S: Final = 10.0
SILENT_S: Final = 30.0  # until a client that has sent no request is disconnected


class Listener:
    """Accepts clients, with a limit to their number and to their silence."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self.clients = HttpClients(MAX_CLIENTS, share=4)
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

    async def _serve(self, listener: socket.socket, server: web.Server, context: ssl.SSLContext | None) -> None:
        async for sock in self.clients.accept(listener):
            self.clients.entering += 1
            self._tasks.spawn("An API client", self._enter(sock, server, context))

    async def _enter(self, sock: socket.socket, server: web.Server, context: ssl.SSLContext | None) -> None:
        loop, timeout = asyncio.get_running_loop(), HANDSHAKE_S if context else None
        try:
            transport, _ = await loop.connect_accepted_socket(server, sock, ssl=context, ssl_handshake_timeout=timeout)
        except OSError:  # a client without TLS, or one that doesn't trust this certificate
            sock.close()
            return
        finally:
            self.clients.entering -= 1
        self.clients.entered(transport)
        await asyncio.sleep(SILENT_S)
        if self.clients.is_idle(transport):
            transport.abort()
