"""The room of pairing: make this Mac and another one members of one cluster."""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web

from core.address import checked_place
from core.node.base.context import NodeContext
from core.node.base.local_server import BEGUN, route
from core.node.base.room import Room
from core.node.pairing.pairing_flow import PairingFlow
from core.node.peers.room import PeersRoom
from core.node.trust.room import TrustRoom
from core.requests.trust import Digits, PairingOffer, PairWith


class PairingRoom(Room):
    """Pairing, one at a time."""

    def __init__(self, node: NodeContext, peers: PeersRoom, trust: TrustRoom) -> None:
        super().__init__(node)
        self.flow = PairingFlow(node, peers.discovery, peers.book, trust.enforcement)

    def routes(self) -> Iterable[web.RouteDef]:
        offer = self.flow.offer
        return (
            route("POST", "/v1/pairing", lambda choice: self.flow.pair_with(choice.device_id), PairWith, BEGUN),
            route("POST", "/v1/pairing/open", self.flow.open),
            route("POST", "/v1/pairing/offer", lambda at: offer(checked_place(at.host, at.port)), PairingOffer, BEGUN),
            route("POST", "/v1/pairing/digits", lambda typed: self.flow.type(typed.digits), Digits),
            route("POST", "/v1/pairing/stop", self.flow.stop),
        )
