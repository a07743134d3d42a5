"""The room of the relay: this Mac's chat, and requests answered by another Mac."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from aiohttp import web

from core.node.answers.answers import Answers
from core.node.base.context import NodeContext
from core.node.base.local_server import BEGUN, route
from core.node.base.message_table import MessageRow, receives
from core.node.base.room import Room
from core.node.peers.mesh import MacGone, Mesh
from core.node.public_api.api_answers import ApiAnswers
from core.node.relay.local_chat import LocalChat
from core.node.relay.messages import RelayReply, RelayRequest, RelayStop
from core.node.relay.relay_server import RelayServer
from core.node.relay.relayed_answers import Relay
from core.requests.answers import AnswerId, ChatRequest


@dataclass(frozen=True, kw_only=True)
class RelayRoom(Room):
    """Requests to the Mac that leads, and from Macs that don't."""

    answers: Answers
    chat: LocalChat
    relay: Relay
    server: RelayServer

    @classmethod
    def build(cls, node: NodeContext, mesh: Mesh, answers: Answers, relay: Relay, answering: ApiAnswers) -> Self:
        server = RelayServer(answering, mesh, node.tasks, relay.name_of, relay.check_trust, is_on=node.config.relays)
        chat = LocalChat(node, answers, answering)
        return cls(node=node, answers=answers, chat=chat, relay=relay, server=server)

    def messages(self) -> Iterable[MessageRow]:
        return (
            receives(RelayRequest, self.server.handle_message),
            receives(RelayStop, self.server.handle_message),
            receives(RelayReply, self.relay.handle_message),
        )

    def routes(self) -> Iterable[web.RouteDef]:
        return (
            route("POST", "/v1/chat", self.chat.ask, ChatRequest, BEGUN),
            web.post("/v1/chat/attended", self.chat.chat_attended),
            route("POST", "/v1/chat/{request_id}/stop", lambda which: self.chat.cancel(which.request_id), AnswerId),
            route("POST", "/v1/answers/continue", self.answers.go_on, AnswerId, BEGUN),
            web.post("/v1/answers/continue/attended", self.chat.go_on_attended),
        )

    def subscribe(self) -> None:
        self.node.signals.on(MacGone, self._gone)

    def _gone(self, mac: MacGone) -> None:
        self.relay.gone(mac.device_id)
        self.server.gone(mac.device_id)
