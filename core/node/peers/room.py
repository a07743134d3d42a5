"""The room of the other Macs: finds, links and watches them, with speed tests and logs."""

from __future__ import annotations

import errno
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Self

from aiohttp import web

from core.address import checked_place
from core.errors import MaclusterError, NodeError, TrustError, UsageError
from core.events import AnyEvent, Peer, encode_event
from core.mac.chip import chip_name
from core.mac.memory import physical_bytes
from core.node.base.context import NodeContext
from core.node.base.local_server import route, stream_route
from core.node.base.message_table import MessageRow, receives
from core.node.base.room import Room
from core.node.peers.addresses import AddressBook, read_proven, write_proven
from core.node.peers.advertised_macs import AdvertisedMacs
from core.node.peers.discovery import AdvertisementEnded, Discovery, Sighting
from core.node.peers.linked_mac import LinkedMacChanged
from core.node.peers.mesh import LinkEnded, MacGone, Mesh
from core.node.peers.messages import (
    LinkProbe,
    LogReply,
    LogRequest,
    PeerSpeedRequest,
    Probed,
    SpeedMoved,
    SpeedResultSent,
    SpeedStop,
)
from core.node.peers.networks import Networks, NetworksChanged
from core.node.peers.node_check import NodeCheck
from core.node.peers.own_mac import OwnMac
from core.node.peers.paths import Paths
from core.node.peers.peer_logs import PeerLogs
from core.node.peers.peer_table import PeerTable
from core.node.peers.speed_test import SpeedTests
from core.node.peers.worker_state import WorkerState
from core.requests.checks import SpeedRequest
from core.requests.trust import Address
from core.trust.identity import parse_text_id


class Search:
    """Finds Macs by Bonjour and at known addresses."""

    def __init__(
        self, node: NodeContext, discovery: Discovery, book: AddressBook, mesh: Mesh, peers: PeerTable
    ) -> None:
        self._discovery, self._book, self._mesh, self._peers = discovery, book, mesh, peers
        self._journal, self._tasks, self._multicast = node.journal, node.tasks, node.config.multicast
        signals = node.signals
        signals.on(Sighting, self._sighted)
        signals.on(AdvertisementEnded, lambda ended: peers.vanished(ended.device_id))
        signals.on(NetworksChanged, self._networks_changed)

    async def advertise(self) -> None:
        if not self._multicast:
            return
        try:
            await self._discovery.look(self._mesh.port)
        except OSError as error:
            self._journal.warn(f"Bonjour is not available here ({_why(error)}); add Macs by address.")

    async def look_again(self) -> None:
        """Try all known addresses and look by Bonjour. Raises UsageError if it is off, NodeError if not available."""
        self._mesh.dialling.roster_changed()
        if not self._multicast:
            raise UsageError("This node runs without Bonjour.", "Known addresses are tried; add others by hand.")
        try:
            await self._discovery.look(self._mesh.port)
        except OSError as error:
            raise NodeError(f"Bonjour is not available here ({_why(error)}).", "Add Macs by address.") from error

    def add(self, address: Address) -> None:
        """Add a Mac's address given by the user. Raises UsageError for an invalid device id or host."""
        device_id = address.device_id
        try:
            parse_text_id(device_id)
            is_other = not self._peers.is_own(device_id)
        except TrustError:
            is_other = False
        if not is_other:
            raise UsageError(
                f"{device_id!r} is not the device id of another Mac.", "`macluster status --json` shows it on that Mac."
            )
        place = checked_place(address.host, address.port)
        if self._book.is_barred(place.host):
            raise UsageError(
                f"No other Mac can be at {place.host}: this Mac has it, or a network inside of this Mac.",
                "Give an address that both Macs reach.",
            )
        self._book.by_hand(device_id, place)
        self._peers.refresh(device_id)
        self._mesh.dialling.reach(device_id)

    def _sighted(self, sighting: Sighting) -> None:
        if self._peers.sighted(sighting):
            who = f"{sighting.name} ({sighting.device_id[:8]})"
            self._journal.warn(f"{who} is advertised at {sighting.host} and elsewhere: its key decides which it is.")
        self._mesh.dialling.reach(sighting.device_id)

    def _networks_changed(self, _: NetworksChanged) -> None:
        """Look again for Macs that are not linked, on the new networks."""
        self._tasks.spawn("Following the networks", self._follow())

    async def _follow(self) -> None:
        with suppress(MaclusterError):  # without Bonjour only known addresses remain; `advertise` has logged it
            await self.look_again()


def _why(error: OSError) -> str:
    """On a Mac, UDP port 5353 belongs to one account at a time, besides the system's own Bonjour."""
    return "another account of this Mac uses it" if error.errno == errno.EADDRINUSE else str(error)


@dataclass(frozen=True, kw_only=True)
class PeersRoom(Room):
    """The other Macs, and the state reported to them."""

    worker: WorkerState
    sightings: AdvertisedMacs
    networks: Networks
    book: AddressBook
    mesh: Mesh
    table: PeerTable
    paths: Paths
    discovery: Discovery
    search: Search
    speed: SpeedTests
    logs: PeerLogs
    check: NodeCheck

    @classmethod
    def build(cls, node: NodeContext) -> Self:
        config, home = node.config, node.home

        def is_member(device_id: str) -> bool:
            return node.store.lists(parse_text_id(device_id))

        worker, sightings = WorkerState(), AdvertisedMacs(is_member)
        networks = Networks(config.host, node.signals)
        remember = partial(write_proven, home.addresses)
        book = AddressBook(sightings, config.peers, read_proven(home.addresses), remember, networks.is_barred)
        own = OwnMac(
            _own_peer(node), node.assessment, worker, networks, relays=config.relays, has_own_gpu=not config.chip
        )
        mesh = Mesh(node, book, own)
        table = PeerTable(node, own, worker, sightings, book, mesh)
        paths = Paths(node.identity, node.store, mesh, networks, book)
        discovery = Discovery(node, is_member)
        return cls(
            node=node,
            worker=worker,
            sightings=sightings,
            networks=networks,
            book=book,
            mesh=mesh,
            table=table,
            paths=paths,
            discovery=discovery,
            search=Search(node, discovery, book, mesh, table),
            speed=SpeedTests(node, mesh, paths),
            logs=PeerLogs(node, mesh),
            check=NodeCheck(node, worker, discovery),
        )

    def messages(self) -> Iterable[MessageRow]:
        speed, logs = self.speed.handle_message, self.logs.handle_message
        return (
            *self.mesh.messages(),
            receives(LinkProbe, speed, while_forked=False),
            receives(Probed, speed, while_forked=False),
            receives(PeerSpeedRequest, speed, while_forked=False),
            receives(SpeedMoved, speed, while_forked=False),
            receives(SpeedResultSent, speed, while_forked=False),
            receives(SpeedStop, speed, while_forked=False),
            receives(LogRequest, logs, while_forked=False),
            receives(LogReply, logs, while_forked=False),
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
