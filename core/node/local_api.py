"""Commands and events of this node on a unix socket: HTTP with JSON bodies, events as server-sent events."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import msgspec
from aiohttp import web

from core.errors import Busy, MaclusterError, NodeError, NotLoaded, UsageError
from core.events import encode_event
from core.node.answers.sessions import SavedSessions
from core.node.base.bus import Bus
from core.node.commands import Commands
from core.node.disks.conversations import Conversations
from core.node.disks.transfers import Transfers
from core.node.trust.trust_commands import TrustCommands
from core.requests import (
    Address,
    AnswerId,
    Body,
    ChatRequest,
    Conversation,
    ConversationId,
    ConversationTitle,
    CopyRequest,
    Digits,
    Done,
    DownloadRequest,
    ForkChoice,
    LoadRequest,
    PairingOffer,
    PairWith,
    PreviewRequest,
    RecoveryOrder,
    RecoveryPhrase,
    Rename,
    SessionName,
    SpeedRequest,
    Target,
)

MAX_REQUEST = 8 << 20

_B = TypeVar("_B", bound=Body)
_V = TypeVar("_V")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class LocalApi:
    """Serves one node's commands; only this user can open the socket."""

    def __init__(
        self,
        commands: Commands,
        sessions: SavedSessions,
        conversations: Conversations,
        trusting: TrustCommands,
        transfers: Transfers,
        bus: Bus,
    ) -> None:
        self._commands = commands
        self._sessions = sessions
        self._conversations = conversations
        self._transfers = transfers
        self._trusting = trusting
        self._bus = bus
        self._runner: web.AppRunner | None = None

    async def start(self, socket: Path) -> None:
        """Listen on `socket`, a leftover of an ended node is replaced."""
        app = web.Application(client_max_size=MAX_REQUEST, middlewares=[_problems])
        app.on_response_prepare.append(self._say_trust)
        app.add_routes(
            [
                web.get("/v1/events", self._events),
                web.get("/v1/models", self._models),
                web.post("/v1/downloads", _taking(DownloadRequest, self._transfers.download)),
                web.post("/v1/copies", _taking(CopyRequest, self._transfers.copy)),
                web.delete("/v1/transfers", self._stop_transfers),
                web.post("/v1/plan", self._plan),
                web.post("/v1/load", self._load),
                web.post("/v1/unload", self._unload),
                web.post("/v1/recovery", _taking(RecoveryOrder, self._commands.recover)),
                web.post("/v1/chat", self._chat),
                web.get("/v1/chat/{request_id}", self._attend),
                web.delete("/v1/chat/{request_id}", self._cancel),
                web.post("/v1/speedtest", _taking(SpeedRequest, self._commands.test_speed)),
                web.delete("/v1/speedtest", self._stop_speed_test),
                web.get("/v1/answers", self._unfinished),
                web.post("/v1/answers/continue", self._go_on),
                web.get("/v1/sessions", self._all_sessions),
                web.post("/v1/sessions/show", _taking(SessionName, self._sessions.show)),
                web.post("/v1/sessions/save", _taking(SessionName, self._sessions.save)),
                web.post("/v1/sessions/load", _taking(SessionName, self._sessions.load)),
                web.delete("/v1/sessions", self._stop_session),
                web.post("/v1/sessions/delete", _taking(SessionName, self._sessions.delete)),
                web.get("/v1/conversations", self._all_conversations),
                web.post("/v1/conversations/read", _taking(ConversationId, self._conversations.read)),
                web.post("/v1/conversations/write", _taking(Conversation, self._conversations.write)),
                web.post("/v1/conversations/rename", _taking(ConversationTitle, self._conversations.rename)),
                web.post("/v1/conversations/delete", _taking(ConversationId, self._conversations.delete)),
                web.post("/v1/peers", self._know),
                web.post("/v1/rescan", self._rescan),
                web.get("/v1/check", self._check),
                web.post("/v1/pairing", self._pair_with),
                web.delete("/v1/pairing", self._stop_pairing),
                web.post("/v1/pairing/open", self._open_pairing),
                web.post("/v1/pairing/offer", self._offer_pairing),
                web.post("/v1/pairing/digits", self._digits),
                web.get("/v1/trust", self._trust),
                web.post("/v1/trust/revoke", _taking(Target, self._trusting.revoke)),
                web.post("/v1/trust/promote", _taking(Target, self._trusting.promote)),
                web.post("/v1/trust/demote", _taking(Target, self._trusting.demote)),
                web.post("/v1/trust/rename", _taking(Rename, self._trusting.rename)),
                web.post("/v1/trust/rotate", self._rotate),
                web.post("/v1/trust/recovery", self._new_recovery),
                web.post("/v1/trust/recover", _taking(RecoveryPhrase, self._trusting.recover)),
                web.post("/v1/trust/resolve", _taking(ForkChoice, self._trusting.resolve)),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await asyncio.to_thread(socket.unlink, missing_ok=True)
        before = os.umask(0o177)
        try:
            await web.UnixSite(self._runner, str(socket)).start()
        finally:
            os.umask(before)

    async def stop(self) -> None:
        """End every stream and close the socket."""
        self._bus.close()
        if self._runner:
            await self._runner.cleanup()

    async def _events(self, request: web.Request) -> web.StreamResponse:
        return await _stream(request, self._bus.follow(), encode_event)

    async def _models(self, request: web.Request) -> web.StreamResponse:
        return _json(await self._commands.models())

    async def _stop_transfers(self, request: web.Request) -> web.StreamResponse:
        return _json(await self._transfers.stop())

    async def _plan(self, request: web.Request) -> web.StreamResponse:
        return _json(await self._commands.preview(await _body(request, PreviewRequest)))

    async def _load(self, request: web.Request) -> web.StreamResponse:
        return _json(await self._commands.load(await _body(request, LoadRequest)), status=202)

    async def _unload(self, request: web.Request) -> web.StreamResponse:
        await self._commands.unload()
        return _json(Done())

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return _json(await self._commands.ask(await _body(request, ChatRequest)), status=202)

    async def _attend(self, request: web.Request) -> web.StreamResponse:
        """Stands as long as the answer runs; a client that goes away does not want it any more."""
        await self._commands.attend(
            request.match_info["request_id"], lambda: request.transport is None or request.transport.is_closing()
        )
        return _json(Done())

    async def _cancel(self, request: web.Request) -> web.StreamResponse:
        self._commands.cancel(request.match_info["request_id"])
        return _json(Done())

    async def _stop_speed_test(self, request: web.Request) -> web.StreamResponse:
        return _json(await self._commands.stop_speed_test())

    async def _unfinished(self, request: web.Request) -> web.StreamResponse:
        return _json(await self._commands.unfinished())

    async def _go_on(self, request: web.Request) -> web.StreamResponse:
        return _json(await self._commands.go_on(await _body(request, AnswerId)), status=202)

    async def _all_sessions(self, request: web.Request) -> web.StreamResponse:
        return _json(await self._sessions.all())

    async def _stop_session(self, request: web.Request) -> web.StreamResponse:
        return _json(await self._sessions.give_up())

    async def _all_conversations(self, request: web.Request) -> web.StreamResponse:
        return _json(await self._conversations.all())

    async def _know(self, request: web.Request) -> web.StreamResponse:
        self._commands.know(await _body(request, Address))
        return _json(Done())

    async def _rescan(self, request: web.Request) -> web.StreamResponse:
        await self._commands.rescan()
        return _json(Done())

    async def _check(self, request: web.Request) -> web.StreamResponse:
        return await _stream(request, self._commands.check(), msgspec.json.encode)

    async def _pair_with(self, request: web.Request) -> web.StreamResponse:
        self._commands.pair_with((await _body(request, PairWith)).device_id)
        return _json(Done(), status=202)

    async def _stop_pairing(self, request: web.Request) -> web.StreamResponse:
        await self._commands.stop_pairing()
        return _json(Done())

    async def _open_pairing(self, request: web.Request) -> web.StreamResponse:
        return _json(await self._commands.open_pairing())

    async def _offer_pairing(self, request: web.Request) -> web.StreamResponse:
        await self._commands.offer_pairing(await _body(request, PairingOffer))
        return _json(Done(), status=202)

    async def _digits(self, request: web.Request) -> web.StreamResponse:
        self._commands.type_digits((await _body(request, Digits)).digits)
        return _json(Done())

    async def _trust(self, request: web.Request) -> web.StreamResponse:
        return _json(self._trusting.view())

    async def _rotate(self, request: web.Request) -> web.StreamResponse:
        return _json(await self._trusting.rotate())

    async def _new_recovery(self, request: web.Request) -> web.StreamResponse:
        return _json(await self._trusting.new_recovery())

    async def _say_trust(self, request: web.Request, reply: web.StreamResponse) -> None:
        trust = self._bus.now.trust
        reply.headers["X-Macluster-Trust"] = f"{trust.level}; weakest={quote(trust.weakest)}"


def _taking(kind: type[_B], command: Callable[[_B], Awaitable[Body]]) -> Handler:
    """A command with a body of that kind."""

    async def handle(request: web.Request) -> web.StreamResponse:
        return _json(await command(await _body(request, kind)))

    return handle


async def _stream(request: web.Request, values: AsyncIterator[_V], encode: Callable[[_V], bytes]) -> web.StreamResponse:
    """Each value as a server-sent event, as soon as it is there."""
    reply = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    await reply.prepare(request)
    with suppress(ConnectionError):
        async for value in values:
            await reply.write(b"data: " + encode(value) + b"\n\n")
    return reply


async def _body(request: web.Request, kind: type[_B]) -> _B:
    try:
        return msgspec.json.decode(await request.read(), type=kind)
    except msgspec.MsgspecError as error:
        raise UsageError(f"The body of {request.method} {request.path} is wrong: {error}.") from error


def _json(body: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), content_type="application/json", status=status)


@web.middleware
async def _problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """An error of ours is answered as the Problem it is, with the status that its kind has."""
    try:
        return await handler(request)
    except MaclusterError as error:
        return _json(error.problem, status=_status(error))


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
