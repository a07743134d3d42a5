"""The per-Mac service: builds its parts, joins them, runs them, and takes them down in order."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path

import msgspec

from core.address import Place, checked_place
from core.errors import NodeError, Problem, TrustError, UsageError
from core.events import Counters, Peer
from core.link.liveness import BEAT_S
from core.link.rekey_limits import KEY_LIMITS, KeyUse
from core.mac.chip import chip_name
from core.mac.memory import physical_bytes
from core.node.answers.answers import Answers
from core.node.answers.sessions import SavedSessions
from core.node.base.bus import Bus
from core.node.base.journal import Journal
from core.node.base.tasks import Tasks
from core.node.commands import Commands
from core.node.disks.conversations import Conversations
from core.node.disks.local_models import LocalModels
from core.node.disks.model_copies import ModelCopies
from core.node.disks.model_inventory import ModelInventory
from core.node.disks.transfers import Transfers
from core.node.local_api import LocalApi
from core.node.message_router import MessageRouter
from core.node.pairing.pairing_flow import Network, PairingFlow
from core.node.peers.addresses import AddressBook, read_proven, write_proven
from core.node.peers.check import Check
from core.node.peers.discovery import Discovery, Sighting, addresses_of
from core.node.peers.mesh import Mesh
from core.node.peers.peer_table import PeerTable
from core.node.peers.sightings import Sightings
from core.node.peers.speed_test import SpeedTests
from core.node.recovery.recovery_driver import RecoveryDriver
from core.node.ring.plan_advisor import PlanAdvisor
from core.node.ring.plan_leader import PlanLeader
from core.node.ring.plan_member import PlanMember
from core.node.ring.planning import Planning
from core.node.ring.split_profiles import SplitProfiles
from core.node.ring.supervisor import Supervisor
from core.node.ring.throughput_history import ThroughputHistory
from core.node.trust.roster_enforcement import RosterEnforcement
from core.node.trust.trust_commands import TrustCommands
from core.settings import CONTROL_PORT, Home, hub_cache
from core.trust.files import private_folder
from core.trust.identity import Identity, parse_text_id, text_id
from core.trust.roster import Member as RosterMember
from core.trust.roster import RosterStore
from core.trust.roster.rotation import settle_rotation
from core.trust.seen import SeenMacs
from core.trust.trust_assessment import TrustAssessment
from core.worker.messages import Report

TAKE_DOWN_S = 10.0
SAVE_EVERY = 60  # rounds of `_watch`


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a node is started. `host` is the address it listens on; `budget_bytes` what its worker may use; `peers` are
    places of other Macs, whichever they are; `key_limits` is what a key of a link may carry.
    """

    home: Home
    name: str
    host: str
    port: int
    budget_bytes: int
    memory_bytes: int = 0
    chip: str = ""
    model_roots: tuple[Path, ...] = ()
    multicast: bool = True
    peers: tuple[Place, ...] = ()
    key_limits: KeyUse = KEY_LIMITS


class Node:
    """One Mac's node. `run` returns when `stop` is called, or when this Mac has changed its key."""

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        home = config.home
        private_folder(home.root)
        self._store = RosterStore(home.rosters)
        self._identity: Identity = settle_rotation(home.identity, self._lists)
        self._seen = SeenMacs(home.seen)
        self._stopping = asyncio.Event()
        self._again: NodeConfig | None = None
        self._bus = Bus()
        self._journal = Journal(home.log, config.name, self._bus)
        self._tasks = Tasks(self._journal, self._stopping)
        self._build_mesh(home)
        self._build_ring(home)
        self._build_disks(home)
        self._build_plans(home)
        self._build_trust(home)
        self._build_doors(home)
        self._cluster.listen(self._rescue)
        self._member.when_own(tell=self._cluster.handle_message, unlinked=self._on_report)

    def _build_mesh(self, home: Home) -> None:
        """Who is there, and how far each is trusted."""
        self._sightings = Sightings(self._is_member)
        self._book = AddressBook(
            self._sightings, self._config.peers, read_proven(home.addresses), partial(write_proven, home.addresses)
        )
        self._standing = TrustAssessment(
            self._store,
            self._seen,
            self._identity.text_id,
            home.root,
            wrong_key=lambda device_id: self._mesh.dialling.wrong_key(device_id),
            other_model=lambda device_id: self._cluster.mismatch(device_id),
        )
        self._peers = PeerTable(
            self._identity,
            self._store,
            self._standing,
            self._seen,
            self._sightings,
            self._book,
            self._bus,
            self._own_peer(),
        )
        self._mesh = Mesh(
            self._identity,
            self._store,
            self._book,
            self._journal,
            self._tasks,
            status=self._peers.status,
            on_change=self._on_change,
            on_roster=lambda: self._following.follow(),
            on_message=lambda device_id, message: self._switchboard.message(device_id, message),
            on_down=lambda device_id, error: self._switchboard.down(device_id, error),
            key_limits=self._config.key_limits,
        )
        self._speed = SpeedTests(self._identity.text_id, self._mesh, self._bus, self._tasks)

    def _build_ring(self, home: Home) -> None:
        """The worker, the plans it serves, the plan this Mac leads, its answers and what is kept of them."""
        config, own_id = self._config, self._identity.text_id
        self._models = LocalModels([home.models, *config.model_roots], home.hashes)
        self._supervisor = Supervisor(
            self._identity,
            config.host,
            self._journal,
            self._tasks,
            on_report=self._on_report,
            on_death=lambda error: self._switchboard.died(error),
        )
        self._member = PlanMember(
            own_id,
            self._mesh,
            self._supervisor,
            self._models,
            self._journal,
            self._tasks,
            cluster=lambda: self._store.cluster().encode(),
            check_trust=lambda plan: self._following.check(plan),
            key_limits=config.key_limits,
        )
        self._cluster = PlanLeader(own_id, self._mesh, self._member, self._bus, self._journal, self._tasks)
        self._answers = Answers(
            self._cluster,
            self._supervisor,
            self._bus,
            self._journal,
            self._tasks,
            home.tokens,
            self._identity.secret("token log"),
        )
        self._sessions = SavedSessions(
            self._cluster,
            self._supervisor,
            self._answers,
            self._journal,
            home.sessions,
            self._identity.secret("session"),
        )

    def _build_disks(self, home: Home) -> None:
        """Which Mac holds which models, and what brings them there."""
        own_id, roots = self._identity.text_id, self._config.model_roots
        self._holdings = ModelInventory(own_id, self._models, self._mesh, self._bus)
        self._transfers = Transfers(
            own_id,
            self._holdings,
            ModelCopies(self._models, self._mesh, home.models),
            self._mesh,
            hub_cache() if hub_cache() in roots else home.models,
            bus=self._bus,
            journal=self._journal,
            tasks=self._tasks,
        )

    def _build_plans(self, home: Home) -> None:
        """What makes plans, and another one when a Mac is lost."""
        self._paces = ThroughputHistory(home.paces)
        self._planning = Planning(
            self._models,
            SplitProfiles(home.split_profiles),
            self._peers,
            self._cluster,
            self._holdings,
            self._paces,
            lambda plan: self._following.check(plan),
        )
        self._rescue = RecoveryDriver(
            self._planning,
            self._peers,
            self._cluster,
            self._answers,
            self._sessions,
            self._bus,
            self._journal,
            self._tasks,
        )

    def _build_doors(self, home: Home) -> None:
        """What a person and other Macs come in by."""
        config, own_id = self._config, self._identity.text_id
        name = self._standing.listed_name(own_id) or config.name
        self._discovery = Discovery(
            own_id,
            name,
            config.host,
            self._tasks,
            self._on_sight,
            on_vanish=self._peers.vanished,
            on_conflict=self._on_conflict,
            is_member=self._is_member,
        )
        network = Network(
            config.host, lambda: addresses_of(config.host)[0], self._discovery.announce, self._sightings.windows
        )
        self._introductions = PairingFlow(
            self._identity, name, self._store, self._bus, self._tasks, network, self._on_paired
        )
        check = Check(
            home,
            config.host,
            config.budget_bytes,
            self._identity.storage,
            self._bus,
            self._discovery,
            self._tasks,
            multicast=config.multicast,
        )
        commands = Commands(
            self._planning,
            self._rescue,
            self._peers,
            self._answers,
            self._introductions,
            self._speed,
            self._on_address,
            self._look_again,
            check,
        )
        conversations = Conversations(home.conversations, self._identity.secret("conversation"))
        self._api = LocalApi(commands, self._sessions, conversations, self._trusting, self._transfers, self._bus)

    def _build_trust(self, home: Home) -> None:
        """What follows from a roster, and what a person can do about it; and who hears what."""
        self._following = RosterEnforcement(
            self._identity.device_id,
            self._store,
            self._standing,
            book=self._book,
            mesh=self._mesh,
            peers=self._peers,
            cluster=self._cluster,
            member=self._member,
            answers=self._answers,
            sessions=self._sessions,
            journal=self._journal,
            tasks=self._tasks,
            restart=self._restart,
        )
        self._trusting = TrustCommands(
            self._identity,
            home,
            self._store,
            self._standing,
            self._following,
            self._mesh,
            self._bus,
            self._journal,
        )
        self._switchboard = MessageRouter(
            cluster=self._cluster,
            member=self._member,
            answers=self._answers,
            sessions=self._sessions,
            rescue=self._rescue,
            trusting=self._trusting,
            speed=self._speed,
            transfers=self._transfers,
            peers=self._peers,
            bus=self._bus,
            journal=self._journal,
            tasks=self._tasks,
            is_forked=lambda: self._store.forked is not None,
        )

    def _own_peer(self) -> Peer:
        return Peer(
            device_id=self._identity.text_id,
            name=self._config.name,
            chip=self._config.chip or chip_name(),
            memory_bytes=self._config.memory_bytes or physical_bytes(),
            budget_bytes=self._config.budget_bytes,
            state="connected",
            trust="paired",
            is_self=True,
            found_by="self",
        )

    async def run(self) -> NodeConfig | None:
        """Start everything, wait for `stop`, take everything down. Where it was not `stop`, but a new key of this Mac:
        how to start the node that takes this one's place. Raises NodeError where it was a part of the node that failed.
        """
        asyncio.get_running_loop().set_exception_handler(self._tasks.unhandled)
        port = self._port = await self._mesh.start(self._config.host, self._config.port)
        self._peers.attach(self._mesh, self._supervisor, self._member, f"{self._config.host}:{port}")
        self._supervisor.start()
        await self._api.start(self._config.home.socket)
        self._tasks.spawn("Advertising this Mac", self._advertise(port))
        self._tasks.essential("The watch over trust", self._watch)
        self._tasks.essential("The watch over answers", self._rescue.watch)
        advisor = PlanAdvisor(self._bus, self._paces, self._planning, self._cluster)
        self._tasks.restartable("Measuring of throughput", advisor.watch)
        self._tasks.restartable("The look at the disk", self._holdings.watch)
        self._journal.info(f"Node {self._identity.text_id[:8]} is up, key kept by {self._identity.storage}.")
        try:
            await self._stopping.wait()
        finally:
            async with asyncio.timeout(TAKE_DOWN_S):
                await self._take_down()
        if failure := self._tasks.failure:
            raise NodeError(f"{failure} failed by a defect, and the node has stopped.", "Its log says where.")
        return self._again

    def stop(self) -> None:
        """Make `run` return."""
        self._stopping.set()

    def _restart(self) -> None:
        self._again = msgspec.structs.replace(self._config, port=self._port)
        self._stopping.set()

    async def _take_down(self) -> None:
        problem = Problem(kind="NodeError", what="The node of this Mac was ended.")
        self._answers.stop_all(problem)
        self._sessions.stop(problem)
        self._speed.close()
        await self._transfers.close()
        await self._introductions.stop()
        await self._discovery.stop()
        await self._mesh.stop("Its node was ended.")
        await self._supervisor.stop()
        await self._api.stop()
        self._config.home.socket.unlink(missing_ok=True)
        await self._tasks.stop()
        self._remember()

    async def _advertise(self, port: int) -> None:
        if not self._config.multicast:
            return
        try:
            await self._discovery.start(port)
        except OSError as error:
            self._journal.warn(f"Bonjour is not to be had here ({error}); give addresses by hand.")

    async def _watch(self) -> None:
        """Memory and processes of this Mac, who is not advertised any more, and what came to the door."""
        for number in count(1):
            self._peers.refresh_own()
            self._following.enforce()
            self._peers.sweep()
            if number % SAVE_EVERY == 0:
                self._remember()
            if (counters := self._counters()) != self._bus.now.counters:
                self._bus.publish(counters)
            await asyncio.sleep(2 * BEAT_S)

    def _counters(self) -> Counters:
        return Counters(
            **self._mesh.knocks,
            links_open=len(self._mesh.contacts),
            pairing_attempts=self._introductions.attempts,
            mdns_records=len(self._sightings),
            mdns_evicted=self._sightings.evicted,
            mdns_refused=self._discovery.refused,
        )

    def _remember(self) -> None:
        with suppress(TrustError):  # a full disk costs a hint
            self._seen.save()

    def _lists(self, device_id: bytes) -> bool:
        return bool(self._store.current and self._store.current.member(device_id))

    def _is_member(self, device_id: str) -> bool:
        return self._lists(parse_text_id(device_id))

    def _on_sight(self, sighting: Sighting) -> None:
        if self._peers.sighted(sighting):
            who = f"{sighting.name} ({sighting.device_id[:8]})"
            self._journal.warn(f"{who} is advertised at {sighting.host} and elsewhere: its key decides which it is.")
        self._mesh.dialling.reach(sighting.device_id)

    async def _look_again(self) -> None:
        """Every known address now, and Bonjour anew."""
        self._mesh.dialling.roster_changed()
        if not self._config.multicast:
            raise UsageError("This node runs without Bonjour.", "Known addresses are looked at; add others by hand.")
        try:
            await self._discovery.look_again(self._port)
        except OSError as error:
            raise NodeError(f"Bonjour is not to be had here ({error}).", "Add Macs by address.") from error

    def _on_conflict(self) -> None:
        self._journal.warn("Another host advertises this Mac's id; it cannot prove it, but others may need longer.")

    def _on_address(self, sighting: Sighting) -> None:
        self._book.by_hand(sighting.device_id, checked_place(sighting.host, sighting.port))
        self._peers.refresh(sighting.device_id)
        self._mesh.dialling.reach(sighting.device_id)

    async def _on_paired(self, member: RosterMember, host: str) -> None:
        device_id = text_id(member.device_id)
        if not self._book.of(device_id):  # without Bonjour: its node listens where nodes do, most likely
            self._book.by_hand(device_id, Place(host, CONTROL_PORT))
        self._journal.info(f"Paired with {member.name}; the roster is at epoch {self._store.cluster().roster.epoch}.")
        await self._following.follow()

    def _on_change(self, device_id: str) -> None:
        self._peers.refresh(device_id)
        self._rescue.changed(device_id)
        self._tasks.spawn("Telling what this Mac holds", self._holdings.greet(device_id))

    def _on_report(self, report: Report) -> None:
        self._switchboard.report(report)
