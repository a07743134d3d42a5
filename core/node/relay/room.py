"""The room of the relay: requests answered by another Mac."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from core.node.base.context import NodeContext
from core.node.base.message_table import MessageRow, receives
from core.node.base.room import Room
from core.node.peers.mesh import MacGone, Mesh
from core.node.public_api.api_answers import ApiAnswers
from core.node.relay.messages import RelayReply, RelayRequest, RelayStop
from core.node.relay.relay_server import RelayServer
from core.node.relay.relayed_answers import Relay


@dataclass(frozen=True, kw_only=True)
class RelayRoom(Room):
    """Requests to the Mac that leads, and from Macs that don't."""

    relay: Relay
    server: RelayServer

    @classmethod
    def build(cls, node: NodeContext, mesh: Mesh, relay: Relay, answering: ApiAnswers) -> Self:
        server = RelayServer(answering, mesh, node.tasks, relay.name_of, relay.check_trust, is_on=node.config.relays)
        return cls(node=node, relay=relay, server=server)

    def messages(self) -> Iterable[MessageRow]:
        return (
            receives(RelayRequest, self.server.handle_message),
            receives(RelayStop, self.server.handle_message),
            receives(RelayReply, self.relay.handle_message),
        )

    def subscribe(self) -> None:
        self.node.signals.on(MacGone, self._gone)

    def _gone(self, mac: MacGone) -> None:
        self.relay.gone(mac.device_id)
        self.server.gone(mac.device_id)
