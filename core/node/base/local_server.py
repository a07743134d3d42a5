"""The node's HTTP server on a unix socket: JSON bodies, and streams of server-sent events.

Rooms add routes with `route` and `stream_route`. A command's arguments come in the path and, as one value, in the body.
GET reads, PUT saves, DELETE deletes; `POST .../stop` cancels.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing, suppress
from inspect import isawaitable
from pathlib import Path
from typing import Any, Final, TypeVar, overload
from urllib.parse import quote

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from core.errors import Busy, MaclusterError, NodeError, NotLoaded, UsageError, VersionsDiffer
from core.field_errors import check_known, decoded, refusal
from core.node.base.bus import Bus
from core.node.base.http_clients import LIMITS, HttpClients
from core.node.base.tasks import Tasks, defects_logger
from core.requests.body import Body, Done
from core.version import HEADER, difference, is_too_old, local_header

MAX_REQUEST: Final = 256 << 20  # a conversation of 100,000 messages
MAX_CLIENTS: Final = 128
REFUSED: Final = 8  # extra connections, to answer that there are too many
BACKLOG: Final = 128
BEGUN: Final = 202  # status of a command that continues after its reply

_B = TypeVar("_B", bound=Body)
_V = TypeVar("_V")


class LocalServer:
    """Serves one node's commands; only this user can open the socket."""

    def __init__(self, routes: Iterable[web.RouteDef], bus: Bus, tasks: Tasks) -> None:
        self._routes, self._bus, self._tasks = routes, bus, tasks
        self._clients = HttpClients(MAX_CLIENTS, share=2)
        self._runner: web.AppRunner | None = None
        self._serving: asyncio.Task[None] | None = None
        self._path: Path | None = None

    async def start(self, path: Path) -> None:
        """Serve at the socket `path`. Raises NodeError if it can't be made."""
        middlewares = [_problems, self._clients.let_all_in, self._refuse]
        app = web.Application(client_max_size=MAX_REQUEST, middlewares=middlewares)
        app.on_response_prepare.append(self._add_headers)
        app.add_routes(self._routes)
        logger = defects_logger("local_api", "A command", self._tasks)
        self._runner = web.AppRunner(app, access_log=None, logger=logger, shutdown_timeout=1.0, **LIMITS)
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        try:
            await asyncio.to_thread(path.unlink, missing_ok=True)
            listener = _listener(path)
        except OSError as error:  # the path is a folder, or longer than the system allows, 103 bytes on a Mac
            cure = "Remove what is there, or choose a folder with a shorter path: --home."
            raise NodeError(f"The socket {path} can't be made: {error.strerror or error}.", cure) from error
        self._path = path
        self._serving = self._tasks.essential("The local API", lambda: self._serve(listener, server))
        self._serving.add_done_callback(lambda _: listener.close())

    async def stop(self) -> None:
        self._bus.close()
        if self._serving:
            self._serving.cancel()
        if self._runner:
            await self._runner.cleanup()
        if self._path:
            self._path.unlink(missing_ok=True)

    async def _serve(self, listener: socket.socket, server: web.Server) -> None:
        async for sock in self._clients.accept(listener):
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(server, sock)
            self._clients.entered(transport)

    @web.middleware
    async def _refuse(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse one client too many, and one that would misunderstand the reply, unless it starts another version."""
        said = request.headers.get(HEADER, "")
        if is_too_old(said) and request.path != "/v1/restart":
            raise VersionsDiffer(difference(local_header(), said))
        if self._clients.asking() > self._clients.most - REFUSED:
            what = f"{self._clients.asking() - 1} clients already use the node of this Mac."
            raise Busy(what, "Quit some of them, then try again.")
        return await handler(request)

    async def _add_headers(self, request: web.Request, reply: web.StreamResponse) -> None:
        reply.headers[HEADER] = local_header()
        trust = self._bus.now.trust
        reply.headers["X-Macluster-Trust"] = f"{trust.level}; weakest={quote(trust.weakest)}"
        reply.headers["Connection"] = "close"  # so an idle connection has not sent a request yet
        reply.force_close()


@overload
def route(method: str, path: str, command: Callable[[], object], *, status: int = 200) -> web.RouteDef: ...
@overload
def route(
    method: str, path: str, command: Callable[[_B], object], takes: type[_B], status: int = 200
) -> web.RouteDef: ...
def route(
    method: str, path: str, command: Callable[..., object], takes: type[_B] | None = None, status: int = 200
) -> web.RouteDef:
    """A row of a room's table: the command for this method and path, and the type of its body, if any.

    Example: `route("POST", "/v1/load", recovery.load, LoadRequest, BEGUN)`
    """

    async def handle(request: web.Request) -> web.StreamResponse:
        answer = command(await body_of(request, takes)) if takes else command()
        said = await answer if isawaitable(answer) else answer
        return json_reply(Done() if said is None else said, status)

    return web.route(method, path, handle)


def stream_route(
    path: str, values: Callable[[], AsyncGenerator[_V, None]], encode: Callable[[_V], bytes] = msgspec.json.encode
) -> web.RouteDef:
    """A row of a room's table: sends each value as a server-sent event as soon as it exists."""

    async def handle(request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await reply.prepare(request)
        async with aclosing(values()) as following:
            with suppress(ConnectionError):
                async for value in following:
                    await reply.write(b"data: " + encode(value) + b"\n\n")
        return reply

    return web.get(path, handle)


def json_reply(body: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), content_type="application/json", status=status)


def _listener(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(before)
    listener.setblocking(False)
    return listener


async def body_of(request: web.Request, kind: type[_B]) -> _B:
    """The arguments of a command. Raises UsageError."""
    raw = await request.read()
    try:
        if request.match_info:
            fields = {**(decoded(raw, dict[str, Any]) if raw else {}), **request.match_info}
            body = msgspec.convert(fields, kind, str_keys=True)
        else:
            body, fields = decoded(raw, kind), decoded(raw, dict[str, Any])
        check_known(fields, body)
    except (UsageError, msgspec.MsgspecError) as error:
        refused = error if isinstance(error, UsageError) else refusal(error)
        raise UsageError(refused.what, difference(local_header(), request.headers.get(HEADER, ""))) from error
    return body


@web.middleware
async def _problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except MaclusterError as error:
        return json_reply(error.problem, status=_status(error))


def _status(error: MaclusterError) -> int:
    match error:
        case UsageError():
            return 400
        case Busy():
            return 429
        case NotLoaded():
            return 409
        case NodeError():
            return 503
        case _:
            return 422
