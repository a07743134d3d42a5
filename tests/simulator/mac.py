"""A Mac: its disk and rosters, which outlive everything, and its node, made of the real parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, cast

from core.events import AnyEvent, Peer, RecoveryState
from core.node.answers.answers import Answers
from core.node.answers.model_tokenizer import ModelTokenizer
from core.node.answers.room import AnswersRoom
from core.node.answers.saved_sessions import SavedSessions
from core.node.base.bus import Bus
from core.node.base.context import NodeContext
from core.node.base.journal import Journal
from core.node.base.message_table import MessageTable
from core.node.base.room import join
from core.node.base.signals import Signals
from core.node.base.tasks import Tasks
from core.node.config import NodeConfig
from core.node.disks.byte_links import ByteLinks
from core.node.disks.model_copies import ModelCopies
from core.node.disks.model_inventory import ModelInventory
from core.node.disks.room import DisksRoom
from core.node.disks.transfers import Transfers
from core.node.peers.addresses import AddressBook
from core.node.peers.advertised_macs import AdvertisedMacs
from core.node.peers.networks import Networks
from core.node.peers.other_plans import OtherPlans
from core.node.peers.own_mac import OwnMac
from core.node.peers.paths import Paths
from core.node.peers.peer_logs import PeerLogs
from core.node.peers.peer_table import PeerTable
from core.node.peers.room import PeersRoom
from core.node.peers.speed_test import SpeedTests
from core.node.peers.worker_state import WorkerState
from core.node.plans.driver import PlanDriver
from core.node.plans.room import PlansRoom
from core.node.public_api.api_answers import ApiAnswers
from core.node.relay.relay_server import RelayServer
from core.node.relay.relayed_answers import Relay
from core.node.relay.room import RelayRoom
from core.node.ring.plan_member import PlanMember
from core.node.ring.planning import Planning
from core.node.ring.prefill_link import PrefillLink
from core.node.ring.ring_trace import Tracing
from core.node.ring.room import RingRoom
from core.node.ring.stage_files import StageFiles
from core.node.ring.throughput_history import ThroughputHistory
from core.node.ring.worker_supervisor import Supervisor
from core.node.trust.room import TrustRoom
from core.node.trust.roster_enforcement import RosterEnforcement
from core.node.trust.trust_commands import TrustCommands
from core.settings import GB, MIB
from core.trust.seen_macs import SeenMacs
from core.trust.trust_assessment import KnownFaults, TrustAssessment
from tests.simulator.disk import Disk, DiskHome
from tests.simulator.keys import NAMES, NOWHERE, chain, mac
from tests.simulator.kind import Kind
from tests.simulator.loop import Process
from tests.simulator.mesh import Mesh
from tests.simulator.network import Network
from tests.simulator.program import Program
from tests.simulator.stand_ins import Models, Rosters, read_tokenizer
from tests.simulator.worker import Worker
from tests.support.rooms import room_of


class _Bus(Bus):
    def __init__(self, tell: Callable[[AnyEvent], None]) -> None:
        super().__init__()
        self._tell_all = tell

    def publish(self, event: AnyEvent) -> None:
        super().publish(event)
        self._tell_all(event)


class _Journal(Journal):
    def __init__(self, note: Callable[[str], None], source: str, bus: Bus) -> None:
        super().__init__(NOWHERE, source, bus)
        self._note = note

    def write(self, level: Any, text: str) -> None:
        self._note(f"{level} {text}")


class _Tasks(Tasks):
    """Shows a defect that a node would log."""

    def __init__(self, journal: Journal, network: Network) -> None:
        super().__init__(journal, asyncio.Event())
        self._failures = network.loop.failures

    def log_defect(self, name: str, error: BaseException) -> None:
        self._failures.append(error)


class Node:
    """One life of a Mac's node: the real parts of `core.node.parts`, over simulated network, disk and worker."""

    def __init__(self, home: Mac, network: Network) -> None:
        self.home = home
        self.process = Process(network.loop, f"{home.name} node")
        identity, store, own_id, models = home.identity, home.store, home.device_id, cast(Any, Models())
        seen, faults = SeenMacs(NOWHERE), KnownFaults()
        assessment = TrustAssessment(store, seen, faults, own_id, NOWHERE)

        # base
        self.bus = bus = _Bus(lambda event: home.watch(self, event))
        signals = Signals()
        journal = _Journal(home.note, home.name, bus)
        self.tasks = tasks = _Tasks(journal, network)
        messages = MessageTable(lambda: store.forked is not None)
        node = NodeContext(
            config=NodeConfig(
                home=DiskHome(NOWHERE, home.disk),
                name=home.name,
                host="",
                port=0,
                budget_bytes=home.budget_bytes,
                has_spare=False,
            ),
            name=home.name,
            identity=identity,
            store=store,
            seen=seen,
            faults=faults,
            assessment=assessment,
            bus=bus,
            signals=signals,
            journal=journal,
            tasks=tasks,
            messages=messages,
        )

        # peers
        self.worker = worker = WorkerState()
        worker.working_set_bytes = 0  # each Mac is ready for layers as soon as it is linked
        sightings = AdvertisedMacs(lambda _: True)
        book = AddressBook(sightings)
        networks = Networks("", signals, tuple)
        own = OwnMac(node, _own_peer(home), worker, networks)
        self.mesh = mesh = cast(Any, Mesh)(own_id, self.process, network, store, own, signals, messages)
        elsewhere = OtherPlans(own_id, bus, mesh, worker, relays=False)
        self.peers = peers = PeerTable(node, own, worker, sightings, book, mesh)
        paths = Paths(identity, store, mesh, networks, book)
        speed = SpeedTests(node, mesh, paths)

        # trust
        self.enforcement = enforcement = RosterEnforcement(node, book, mesh, peers, worker)
        trust = TrustCommands(node, enforcement, mesh, worker)

        # disks
        inventory = ModelInventory(own_id, models, mesh, bus)
        copies = ModelCopies(models, mesh, ByteLinks(identity, store.cluster, paths.ways, ""), NOWHERE, tasks)
        transfers = Transfers(node, inventory, copies, mesh, NOWHERE)

        # ring
        self.supervisor = supervisor = Supervisor(node, worker)
        self.member = member = PlanMember(node, mesh, paths, supervisor, worker, models, models)
        files = StageFiles(models, models, transfers, models)
        tracing = Tracing(node, mesh, supervisor, worker)
        throughput = ThroughputHistory(NOWHERE)
        planning = Planning(node, models, models, files, peers, worker, throughput, supervisor.reported)

        # answers and their recovery
        self.answers = answers = Answers(node, worker, supervisor, ModelTokenizer(read_tokenizer))
        self.sessions = sessions = SavedSessions(node, worker, supervisor, answers)
        prefill = PrefillLink(node, mesh, member)
        self.plans = PlanDriver(node, mesh, peers, worker, member, planning, files, prefill, answers, sessions)

        relay = Relay(mesh, elsewhere, tasks, bus.now.name_of, answers.opening.check_trust)
        answering = ApiAnswers(answers, lambda: bus.now, relay.model, tasks, 0)
        relay_server = RelayServer(answering, relay, mesh, tasks, is_on=False)
        rooms = (
            room_of(
                PeersRoom,
                node=node,
                worker=worker,
                sightings=sightings,
                networks=networks,
                book=book,
                mesh=mesh,
                elsewhere=elsewhere,
                table=peers,
                paths=paths,
                speed=speed,
                logs=PeerLogs(node, mesh),
            ),
            room_of(TrustRoom, node=node, enforcement=enforcement, commands=trust),
            room_of(
                DisksRoom,
                node=node,
                models=models,
                inventory=inventory,
                copies=copies,
                transfers=transfers,
                comparison=models,
            ),
            room_of(
                RingRoom,
                node=node,
                supervisor=supervisor,
                member=member,
                files=files,
                tracing=tracing,
                throughput=throughput,
                planning=planning,
            ),
            room_of(AnswersRoom, node=node, answers=answers, sessions=sessions),
            room_of(
                PlansRoom,
                node=node,
                elsewhere=elsewhere,
                peers=peers,
                worker=worker,
                planning=planning,
                driver=self.plans,
                prefill=prefill,
            ),
            room_of(RelayRoom, node=node, answers=answers, relay=relay, server=relay_server),
        )
        join(node, rooms)
        self.process.soon(self._start)

    def _start(self) -> None:
        self.peers.refresh_own()
        self.mesh.start()
        self.supervisor.start()
        if self.home.leads:
            self.tasks.essential("The watch over answers", self.plans.watch)
        if self.home.number == 0:
            self.tasks.essential("The watch over trust", self._watch)

    async def _watch(self) -> None:
        while True:
            self.enforcement.enforce()
            await asyncio.sleep(4.0)


def _own_peer(home: Mac) -> Peer:
    return Peer(
        device_id=home.device_id,
        name=home.name,
        budget_bytes=home.budget_bytes,
        state="connected",
        trust="paired",
        is_self=True,
        found_by="self",
    )


class Mac:
    """A Mac and its person.

    `load_s`: seconds its worker takes to load; `fails`: number of next loads that run out of memory. `leads`: whether a
    person loads models and asks here.
    """

    def __init__(
        self,
        number: int,
        size: int,
        network: Network,
        kind: Kind,
        random: Random,
        *,
        budget_gb: int,
        note: Callable[[str], None],
        watch: Callable[[Node, AnyEvent], None],
    ) -> None:
        self.number, self.name, self.identity = number, NAMES[number], mac(number)
        self.device_id = self.identity.text_id
        self.store, self.disk = Rosters(chain(size)), Disk()
        self.budget_bytes, self.note, self.watch = budget_gb * GB + kind.mirrors * MIB, note, watch
        self.leads, self._stutters = number < kind.heads, kind.whims if kind.stutters else None
        self.load_s, self.fails = random.choice((0.05, 0.3, 2.0)), 0
        self.worker: Worker | None = None
        self._network, self._random = network, random
        self.node = Node(self, network)

    @property
    def is_up(self) -> bool:
        """Whether its node runs."""
        return not self.node.process.is_dead

    @property
    def state(self) -> RecoveryState:
        """The state of the plan it leads, as a person sees it."""
        recovery = self.node.bus.now.recovery
        return recovery.state if recovery else "running"

    @property
    def is_over(self) -> bool:
        """Whether it leads no plan and recovers none."""
        return self.is_up and self.state in ("running", "parked") and self.node.worker.led is None

    def boot(self) -> None:
        """Start the node again."""
        if not self.is_up:
            self.node = Node(self, self._network)

    def kill_node(self) -> None:
        """kill -9; its worker ends by itself."""
        self.node.process.kill()
        self.node.mesh.hang_up()
        if self.worker:
            self.worker.process.soon(self.worker.die, 0, after=0.001)

    def power_cut(self) -> None:
        """Cut the power: no process is informed, and unforced data may be lost."""
        self.node.process.kill()
        if self.worker:
            self.worker.die(-9, silently=True)
        self.disk.power_cut(self._random)

    def processes(self) -> list[Process]:
        """The processes of its node and worker."""
        return [self.node.process, *([self.worker.process] if self.worker else [])]

    def _runs_out_of_memory(self) -> bool:
        fails, self.fails = self.fails > 0, max(0, self.fails - 1)
        return fails

    def run_worker(self) -> Program:
        """Start a worker for its node."""
        self.worker = Worker(self.device_id, self.node.process, self._network, self._random, self.load_s)
        self.worker.disk, self.worker.stutters = self.disk, self._stutters
        self.worker.runs_out_of_memory = self._runs_out_of_memory
        self.worker.process.is_stopped = self.node.process.is_stopped
        return self.worker.program
