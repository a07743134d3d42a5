"""The room of the other Macs: finds, links and watches them, with speed tests and logs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from functools import partial

from aiohttp import web

from core.events import AnyEvent, Peer, encode_event
from core.mac.chip import chip_name
from core.mac.memory import physical_bytes
from core.node.base.context import NodeContext
from core.node.base.local_server import route, stream_route
from core.node.base.message_table import MessageRow, receives
from core.node.base.room import Room
from core.node.peers import messages
from core.node.peers.addresses import AddressBook, read_proven, write_proven
from core.node.peers.advertised_macs import AdvertisedMacs
from core.node.peers.discovery import Discovery
from core.node.peers.linked_mac import LinkedMacChanged
from core.node.peers.mesh import LinkEnded, MacGone, Mesh
from core.node.peers.networks import Networks
from core.node.peers.node_check import NodeCheck
from core.node.peers.other_plans import OtherPlans
from core.node.peers.own_mac import OwnMac
from core.node.peers.paths import Paths
from core.node.peers.peer_logs import PeerLogs
from core.node.peers.peer_table import PeerTable
from core.node.peers.search import Search
from core.node.peers.speed_test import SpeedTests
from core.node.peers.worker_state import WorkerState
from core.requests.checks import SpeedRequest
from core.requests.trust import Address
from core.trust.identity import parse_text_id


class PeersRoom(Room):
    """The other Macs, and the state reported to them."""

    def __init__(self, node: NodeContext) -> None:
        super().__init__(node)
        config, home = node.config, node.home

        def is_member(device_id: str) -> bool:
            return node.store.lists(parse_text_id(device_id))

        self.worker = worker = WorkerState()
        self.sightings = sightings = AdvertisedMacs(is_member)
        self.networks = networks = Networks(config.host, node.signals)
        proven, remember = read_proven(home.addresses), partial(write_proven, home.addresses)
        self.book = book = AddressBook(sightings, config.peers, proven, remember, networks.is_barred)
        own = OwnMac(node, _own_peer(node), worker, networks)
        self.mesh = mesh = Mesh(node, book, own)
        self.elsewhere = OtherPlans(node.own_id, node.bus, mesh, worker, relays=config.relays)
        self.table = table = PeerTable(node, own, worker, sightings, book, mesh)
        self.paths = Paths(node.identity, node.store, mesh, networks, book)
        self.discovery = Discovery(node, is_member)
        self.search = Search(node, self.discovery, book, mesh, table)
        self.speed = SpeedTests(node, mesh, self.paths)
        self.logs = PeerLogs(node, mesh)
        self.check = NodeCheck(node, worker, self.discovery)

    def messages(self) -> Iterable[MessageRow]:
        speed, logs = self.speed.handle_message, self.logs.handle_message
        return (
            *self.mesh.messages(),
            receives(messages.LinkProbe, speed, while_forked=False),
            receives(messages.Probed, speed, while_forked=False),
            receives(messages.PeerSpeedRequest, speed, while_forked=False),
            receives(messages.SpeedMoved, speed, while_forked=False),
            receives(messages.SpeedResultSent, speed, while_forked=False),
            receives(messages.SpeedStop, speed, while_forked=False),
            receives(messages.LogRequest, logs, while_forked=False),
            receives(messages.LogReply, logs, while_forked=False),
        )

    def routes(self) -> Iterable[web.RouteDef]:
        return (
            stream_route("/v1/events", self._events, encode_event),
            stream_route("/v1/check", self.check.findings),
            route("POST", "/v1/speedtest", self.speed.test, SpeedRequest),
            route("POST", "/v1/speedtest/stop", self.speed.stop),
            route("POST", "/v1/peers", self.search.add, Address),
            route("POST", "/v1/rescan", self.search.look_again),
        )

    def subscribe(self) -> None:
        self.node.signals.on(LinkedMacChanged, lambda contact: self.table.refresh(contact.device_id))
        self.node.signals.on_awaited(LinkEnded, self._link_ended)

    async def _events(self) -> AsyncGenerator[AnyEvent, None]:
        with self.logs.read():
            async for event in self.node.bus.follow():
                yield event

    async def _link_ended(self, ended: LinkEnded) -> None:
        device_id, why = ended.device_id, ended.error.what
        self.node.journal.warn(f"{self.node.bus.now.name_of(device_id)} is gone: {why}")
        self.table.went(device_id, why)
        self.speed.gone(device_id)
        self.logs.gone(device_id)
        self.node.signals.emit(MacGone(device_id))


def _own_peer(node: NodeContext) -> Peer:
    config = node.config
    return Peer(
        device_id=node.own_id,
        name=config.name,
        chip=config.chip or chip_name(),
        memory_bytes=config.memory_bytes or physical_bytes(),
        budget_bytes=config.budget_bytes,
        state="connected",
        trust="paired",
        is_self=True,
        found_by="self",
    )
