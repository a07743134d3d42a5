"""Commands and events of this node on a unix socket: HTTP with JSON bodies, events as server-sent events.

`LocalApi._routes` is the table of all endpoints: its method and path, the type of what is asked, and the one function
that answers it, which is a command of the part that it concerns. What is asked comes in the path and in the body, as
one value. GET reads, PUT keeps, DELETE deletes; `POST .../stop` ends what is under way.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from inspect import isawaitable
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec
from aiohttp import web

from core.address import checked_place
from core.errors import Busy, MaclusterError, NodeError, NotLoaded, UsageError
from core.events import encode_event
from core.field_errors import decoded, refusal
from core.node.answers.answers import Answers
from core.node.answers.saved_sessions import SavedSessions
from core.node.base.bus import Bus
from core.node.base.defects import defects_logger
from core.node.base.local_clients import Handler, LocalClients
from core.node.base.tasks import Tasks
from core.node.disks.conversations import Conversations
from core.node.disks.transfers import Transfers
from core.node.pairing.pairing_flow import PairingFlow
from core.node.peers.check import NodeCheck
from core.node.peers.peer_logs import PeerLogs
from core.node.peers.search import Search
from core.node.peers.speed_test import SpeedTests
from core.node.public_api.api_control import ApiControl
from core.node.recovery.recovery_driver import RecoveryDriver
from core.node.ring.disk_trimming import Trimming
from core.node.ring.hub_model_previews import HubModelPreviews
from core.node.ring.planning import Planning
from core.node.ring.ring_trace import Tracing
from core.node.trust.trust_commands import TrustCommands
from core.requests.answers import AnswerId, ChatRequest
from core.requests.api import ApiKeyName
from core.requests.body import Body, Done
from core.requests.checks import SpeedRequest
from core.requests.conversations import Conversation, ConversationId, ConversationTitle, SearchText, SessionName
from core.requests.disks import CopyRequest, DownloadRequest, TransferOrder, TrimRequest
from core.requests.plans import LoadRequest, ModelChoice, PlanPreview, PreviewRequest, RecoveryOrder
from core.requests.trace import TraceRequest
from core.requests.trust import Address, Digits, ForkChoice, PairingOffer, PairWith, RecoveryPhrase, Rename, Target

MAX_REQUEST: Final = 8 << 20
BACKLOG: Final = 128
BEGUN: Final = 202

_B = TypeVar("_B", bound=Body)
_V = TypeVar("_V")


class LocalApi:
    """Serves one node's commands; only this user can open the socket."""

    def __init__(
        self,
        *,
        planning: Planning,
        known: HubModelPreviews,
        recovery: RecoveryDriver,
        answers: Answers,
        sessions: SavedSessions,
        conversations: Conversations,
        transfers: Transfers,
        trimming: Trimming,
        speed: SpeedTests,
        tracing: Tracing,
        logs: PeerLogs,
        search: Search,
        check: NodeCheck,
        pairing: PairingFlow,
        trust: TrustCommands,
        api: ApiControl,
        bus: Bus,
        tasks: Tasks,
    ) -> None:
        self._planning, self._known, self._recovery, self._answers = planning, known, recovery, answers
        self._sessions, self._conversations, self._transfers = sessions, conversations, transfers
        self._speed, self._search, self._check = speed, search, check
        self._pairing, self._trust, self._api = pairing, trust, api
        self._tracing, self._trimming, self._logs = tracing, trimming, logs
        self._bus, self._tasks = bus, tasks
        self._runner: web.AppRunner | None = None
        self._serving: asyncio.Task[None] | None = None

    async def start(self, path: Path) -> None:
        """Listen at `path`; a leftover of an ended node is replaced."""
        clients = LocalClients()
        app = web.Application(client_max_size=MAX_REQUEST, middlewares=[_problems, clients.admit])
        app.on_response_prepare.append(self._add_headers)
        app.add_routes(self._routes())
        logger = defects_logger("local_api", "A command", self._tasks)
        self._runner = web.AppRunner(app, access_log=None, logger=logger, shutdown_timeout=1.0)
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        await asyncio.to_thread(path.unlink, missing_ok=True)
        listener = _listener(path)
        self._serving = self._tasks.essential("The local API", lambda: clients.serve(listener, server))
        self._serving.add_done_callback(lambda _: listener.close())

    async def stop(self) -> None:
        """End every stream and close the socket."""
        self._bus.close()
        if self._serving:
            self._serving.cancel()
        if self._runner:
            await self._runner.cleanup()

    def _routes(self) -> list[web.RouteDef]:
        planning, recovery, answers, transfers = self._planning, self._recovery, self._answers, self._transfers
        sessions, conversations, speed, search = self._sessions, self._conversations, self._speed, self._search
        pairing, trust, api = self._pairing, self._trust, self._api
        return [
            web.get("/v1/events", self._events),
            _plain("GET", "/v1/models", self._models),
            _plain("GET", "/v1/models/known", self._known.choices),
            _taking("POST", "/v1/plan", PreviewRequest, lambda asked: planning.preview(asked, parts=asked.parts)),
            _taking("POST", "/v1/load", LoadRequest, self._load, BEGUN),
            _plain("POST", "/v1/unload", recovery.unload),
            _taking("POST", "/v1/recovery", RecoveryOrder, lambda order: recovery.choose(order.choice)),
            _taking("POST", "/v1/downloads", DownloadRequest, transfers.download, BEGUN),
            _taking("POST", "/v1/copies", CopyRequest, transfers.copy, BEGUN),
            _taking("POST", "/v1/transfers/{what}", TransferOrder, transfers.change),
            _plain("GET", "/v1/disks", planning.disks),
            _taking("POST", "/v1/trim", TrimRequest, self._trimming.trim),
            _taking("POST", "/v1/chat", ChatRequest, answers.ask, BEGUN),
            web.get("/v1/chat/{request_id}", self._attend),
            _taking("POST", "/v1/chat/{request_id}/stop", AnswerId, lambda which: answers.cancel(which.request_id)),
            _plain("GET", "/v1/answers", answers.unfinished),
            _taking("POST", "/v1/answers/continue", AnswerId, answers.go_on, BEGUN),
            _plain("GET", "/v1/sessions", sessions.all),
            _taking("GET", "/v1/sessions/{name:[^/]+}", SessionName, sessions.show),
            _taking("PUT", "/v1/sessions/{name:[^/]+}", SessionName, sessions.save),
            _taking("DELETE", "/v1/sessions/{name:[^/]+}", SessionName, sessions.delete),
            _taking("POST", "/v1/sessions/{name:[^/]+}/load", SessionName, sessions.load),
            _plain("POST", "/v1/sessions/stop", sessions.give_up),
            _plain("GET", "/v1/conversations", conversations.all),
            _taking("POST", "/v1/conversations/search", SearchText, conversations.holding),
            _taking("GET", "/v1/conversations/{id}", ConversationId, conversations.read),
            _taking("PUT", "/v1/conversations/{id}", Conversation, conversations.write),
            _taking("PATCH", "/v1/conversations/{id}", ConversationTitle, conversations.rename),
            _taking("DELETE", "/v1/conversations/{id}", ConversationId, conversations.delete),
            _taking("POST", "/v1/speedtest", SpeedRequest, speed.test),
            _plain("POST", "/v1/speedtest/stop", speed.stop),
            _taking("POST", "/v1/trace", TraceRequest, self._tracing.trace),
            _taking("POST", "/v1/peers", Address, search.add),
            _plain("POST", "/v1/rescan", search.look_again),
            web.get("/v1/check", self._findings),
            _taking("POST", "/v1/pairing", PairWith, lambda choice: pairing.pair_with(choice.device_id), BEGUN),
            _plain("POST", "/v1/pairing/open", pairing.open),
            _taking(
                "POST",
                "/v1/pairing/offer",
                PairingOffer,
                lambda at: pairing.offer(checked_place(at.host, at.port)),
                BEGUN,
            ),
            _taking("POST", "/v1/pairing/digits", Digits, lambda typed: pairing.type(typed.digits)),
            _plain("POST", "/v1/pairing/stop", pairing.stop),
            _plain("GET", "/v1/trust", trust.view),
            _taking("POST", "/v1/trust/revoke", Target, trust.revoke),
            _taking("POST", "/v1/trust/promote", Target, trust.promote),
            _taking("POST", "/v1/trust/demote", Target, trust.demote),
            _taking("POST", "/v1/trust/rename", Rename, trust.rename),
            _plain("POST", "/v1/trust/rotate", trust.rotate),
            _plain("POST", "/v1/trust/recovery", trust.new_recovery),
            _taking("POST", "/v1/trust/recover", RecoveryPhrase, trust.recover),
            _taking("POST", "/v1/trust/resolve", ForkChoice, trust.resolve),
            _plain("POST", "/v1/api/start", api.start),
            _plain("POST", "/v1/api/stop", api.stop),
            _taking("POST", "/v1/api/keys", ApiKeyName, api.new_key),
            _taking("DELETE", "/v1/api/keys/{name:[^/]+}", ApiKeyName, api.revoke_key),
        ]

    async def _events(self, request: web.Request) -> web.StreamResponse:
        with self._logs.read():
            return await _stream(request, self._bus.follow(), encode_event)

    async def _findings(self, request: web.Request) -> web.StreamResponse:
        return await _stream(request, self._check.findings(), msgspec.json.encode)

    async def _models(self) -> list[ModelChoice]:
        asked, found = self._recovery.request, await self._planning.choices()
        return [msgspec.structs.replace(each, asked=asked) if each.loaded and asked.model else each for each in found]

    async def _load(self, request: LoadRequest) -> PlanPreview:
        await self._recovery.load(request)
        return await self._planning.preview(request)

    async def _attend(self, request: web.Request) -> web.StreamResponse:
        """Stands as long as the answer runs; a client that goes away does not want it any more."""
        await self._answers.attend(
            request.match_info["request_id"], lambda: request.transport is None or request.transport.is_closing()
        )
        return _json(Done())

    async def _add_headers(self, request: web.Request, reply: web.StreamResponse) -> None:
        trust = self._bus.now.trust
        reply.headers["X-Macluster-Trust"] = f"{trust.level}; weakest={quote(trust.weakest)}"
        reply.headers["Connection"] = "close"  # so who waits here is one who has asked nothing yet
        reply.force_close()


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


def _plain(method: str, path: str, command: Callable[[], object], status: int = 200) -> web.RouteDef:
    """A command that is asked for nothing."""

    async def handle(request: web.Request) -> web.StreamResponse:
        return _json(await _done(command()), status)

    return web.route(method, path, handle)


def _taking(method: str, path: str, kind: type[_B], command: Callable[[_B], object], status: int = 200) -> web.RouteDef:
    """A command that is asked for a value of that kind."""

    async def handle(request: web.Request) -> web.StreamResponse:
        return _json(await _done(command(await _asked(request, kind))), status)

    return web.route(method, path, handle)


async def _done(answer: object) -> object:
    """What a command says, now or later; those that have nothing to say are done."""
    said = await answer if isawaitable(answer) else answer
    return Done() if said is None else said


async def _stream(request: web.Request, values: AsyncIterator[_V], encode: Callable[[_V], bytes]) -> web.StreamResponse:
    """Each value as a server-sent event, as soon as it is there."""
    reply = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    await reply.prepare(request)
    with suppress(ConnectionError):
        async for value in values:
            await reply.write(b"data: " + encode(value) + b"\n\n")
    return reply


async def _asked(request: web.Request, kind: type[_B]) -> _B:
    """Its fields are in the path and in the body."""
    raw = await request.read()
    if not request.match_info:
        return decoded(raw, kind)
    fields = decoded(raw, dict[str, Any]) if raw else {}
    try:
        return msgspec.convert({**fields, **request.match_info}, kind, str_keys=True)
    except msgspec.MsgspecError as error:
        raise refusal(error) from error


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
