"""Accepts HTTP clients, with or without TLS, up to a limit."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from functools import partial
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import ContentEncodingError, HttpProcessingError

from core.errors import NodeError
from core.mac.port_holder import port_holder
from core.node.base.http_clients import HttpClients
from core.node.base.tasks import Tasks
from core.node.config import ApiOptions
from core.node.public_api.http_bodies import UNDECODABLE, refused

MAX_CLIENTS: Final = 512
BACKLOG: Final = 128
HANDSHAKE_S: Final = 10.0
SILENT_S: Final = 30.0  # until a client that has sent no request with a key is disconnected


class ApiConnection(web.RequestHandler):
    """A client's connection, which answers in JSON what no handler sees, such as a header that can't be read."""

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        super().handle_error(request, status, exc, message)  # logs a defect
        what = "Internal error in macluster. Its log says where."
        if isinstance(exc, ContentEncodingError):
            what = " ".join(UNDECODABLE)
        elif isinstance(exc, HttpProcessingError):
            what = f"The request is not valid HTTP: {exc.message.splitlines()[0].rstrip(':.')}."
        return _closing(status, what)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        if isinstance(resp, web.HTTPException):  # aiohttp's own, before any handler of ours
            resp = _closing(resp.status, "The Expect header is not supported. Leave it out.")
        return await super().finish_response(request, resp, start_time)


Connect = partial[ApiConnection]


def _closing(status: int, what: str) -> web.Response:
    reply = refused(status, what)
    reply.headers["Server"] = "macluster"
    reply.force_close()
    return reply


class Listener:
    """Accepts clients, with a limit to their number and to their silence."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self.clients = HttpClients(MAX_CLIENTS, share=4)
        self._serving: asyncio.Task[None] | None = None

    def start(self, options: ApiOptions, connect: Connect, context: ssl.SSLContext | None) -> int:
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
        self._serving = self._tasks.essential("The API", lambda: self._serve(listener, connect, context))
        self._serving.add_done_callback(lambda _: listener.close())
        return int(listener.getsockname()[1])

    def stop(self) -> None:
        if self._serving:
            self._serving.cancel()

    async def _serve(self, listener: socket.socket, connect: Connect, context: ssl.SSLContext | None) -> None:
        async for sock in self.clients.accept(listener):
            self.clients.enters(self._tasks.spawn("An API client", self._enter(sock, connect, context)))

    async def _enter(self, sock: socket.socket, connect: Connect, context: ssl.SSLContext | None) -> None:
        loop, timeout = asyncio.get_running_loop(), HANDSHAKE_S if context else None
        try:
            transport, _ = await loop.connect_accepted_socket(connect, sock, ssl=context, ssl_handshake_timeout=timeout)
        except OSError:  # a client without TLS, or one that doesn't trust this certificate
            sock.close()
            return
        self.clients.entered(transport)
        await asyncio.sleep(SILENT_S)
        if self.clients.is_unproven(transport):
            transport.abort()
