"""The room of the relay: this Mac's chat, and requests answered by another Mac."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TypeVar

import msgspec
from aiohttp import web

from core.node.answers.answers import Answers
from core.node.base.context import NodeContext
from core.node.base.local_server import BEGUN, body_of, route
from core.node.base.message_table import MessageRow, receives
from core.node.base.room import Room
from core.node.peers.mesh import MacGone, Mesh
from core.node.public_api.api_answers import ApiAnswers
from core.node.relay.local_chat import LocalChat
from core.node.relay.messages import RelayReply, RelayRequest, RelayStop
from core.node.relay.relay_server import RelayServer
from core.node.relay.relayed_answers import Relay
from core.requests.answers import AnswerId, ChatRequest, RequestAccepted
from core.requests.body import Body

_B = TypeVar("_B", bound=Body)


class RelayRoom(Room):
    """Requests to the Mac that leads, and from Macs that don't."""

    def __init__(self, node: NodeContext, mesh: Mesh, answers: Answers, relay: Relay, answering: ApiAnswers) -> None:
        super().__init__(node)
        self.answers, self.relay, self.chat = answers, relay, LocalChat(node, answers, answering)
        self.server = RelayServer(answering, relay, mesh, node.tasks, is_on=node.config.relays)

    def messages(self) -> Iterable[MessageRow]:
        return (
            receives(RelayRequest, self.server.handle_message),
            receives(RelayStop, self.server.handle_message),
            receives(RelayReply, self.relay.handle_message),
        )

    def routes(self) -> Iterable[web.RouteDef]:
        return (
            route("POST", "/v1/chat", self.chat.ask, ChatRequest, BEGUN),
            self._attended("/v1/chat/attended", self.chat.ask, ChatRequest),
            route("POST", "/v1/chat/{request_id}/stop", lambda which: self.chat.cancel(which.request_id), AnswerId),
            route("POST", "/v1/answers/continue", self.answers.go_on, AnswerId, BEGUN),
            self._attended("/v1/answers/continue/attended", self.answers.go_on, AnswerId),
        )

    def _attended(self, path: str, begin: Callable[[_B], Awaitable[RequestAccepted]], takes: type[_B]) -> web.RouteDef:
        """A row whose reply lasts as long as the answer, which is cancelled if the client is gone before."""

        async def handle(request: web.Request) -> web.StreamResponse:
            accepted = await begin(await body_of(request, takes))
            reply = web.StreamResponse(status=BEGUN, headers={"Content-Type": "text/event-stream"})
            with suppress(ConnectionError):
                await reply.prepare(request)
                await reply.write(b"data: " + msgspec.json.encode(accepted) + b"\n\n")
            await self.chat.attend(
                accepted.request_id, lambda: request.transport is None or request.transport.is_closing()
            )
            return reply

        return web.post(path, handle)

    def subscribe(self) -> None:
        self.node.signals.on(MacGone, self._gone)

    def _gone(self, mac: MacGone) -> None:
        self.relay.gone(mac.device_id)
        self.server.gone(mac.device_id)
