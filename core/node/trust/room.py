"""The room of trust: enforces the roster and carries out the user's commands on it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from aiohttp import web

from core.node.base.context import NodeContext
from core.node.base.local_server import route
from core.node.base.message_table import MessageRow, receives
from core.node.base.room import Room
from core.node.peers.room import PeersRoom
from core.node.trust.messages import KeyChange, KeyRefused
from core.node.trust.roster_enforcement import RosterEnforcement
from core.node.trust.trust_commands import TrustCommands
from core.requests.trust import ForkChoice, RecoveryPhrase, Rename, Target
from core.trust.roster.changes import demote, promote, revoke


class TrustRoom(Room):
    """The roster: its consequences and its commands."""

    def __init__(self, node: NodeContext, peers: PeersRoom) -> None:
        super().__init__(node)
        self.enforcement = RosterEnforcement(node, peers.book, peers.mesh, peers.table, peers.worker)
        self.commands = TrustCommands(node, self.enforcement, peers.mesh, peers.worker)

    def messages(self) -> Iterable[MessageRow]:
        return receives(KeyChange, self._handle), receives(KeyRefused, self._handle)

    def routes(self) -> Iterable[web.RouteDef]:
        commands = self.commands
        return (
            route("GET", "/v1/trust", commands.view),
            route("POST", "/v1/trust/revoke", partial(commands.change, revoke), Target),
            route("POST", "/v1/trust/promote", partial(commands.change, promote), Target),
            route("POST", "/v1/trust/demote", partial(commands.change, demote), Target),
            route("POST", "/v1/trust/rename", commands.rename, Rename),
            route("POST", "/v1/trust/rotate", commands.rotate),
            route("POST", "/v1/trust/recovery", commands.new_recovery),
            route("POST", "/v1/trust/recover", commands.recover, RecoveryPhrase),
            route("POST", "/v1/trust/resolve", commands.resolve, ForkChoice),
        )

    def _handle(self, device_id: str, message: KeyChange | KeyRefused) -> None:
        self.node.tasks.spawn("A message about a key", self.commands.handle_message(device_id, message))
