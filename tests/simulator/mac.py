"""A Mac: its disk and rosters, which outlive everything, and the node that runs on it, made of the real parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, cast

from core.events import AnyEvent, Peer, RecoveryState
from core.link.rekey_limits import KEY_LIMITS
from core.node.answers.answers import Answers
from core.node.answers.sessions import SavedSessions
from core.node.base.bus import Bus
from core.node.base.journal import Journal
from core.node.base.tasks import Tasks
from core.node.disks.model_copies import ModelCopies
from core.node.disks.model_inventory import ModelInventory
from core.node.disks.transfers import Transfers
from core.node.message_router import MessageRouter
from core.node.peers.addresses import AddressBook
from core.node.peers.peer_table import PeerTable
from core.node.peers.sightings import Sightings
from core.node.peers.speed_test import SpeedTests
from core.node.recovery.recovery_driver import RecoveryDriver
from core.node.ring.plan_leader import PlanLeader
from core.node.ring.plan_member import PlanMember
from core.node.ring.planning import Planning
from core.node.ring.supervisor import Supervisor
from core.node.ring.throughput_history import ThroughputHistory
from core.node.trust.roster_enforcement import RosterEnforcement
from core.settings import GB
from core.trust.seen import SeenMacs
from core.trust.trust_assessment import TrustAssessment
from tests.simulator.disk import Disk
from tests.simulator.keys import NAMES, NOWHERE, chain, mac
from tests.simulator.loop import Process
from tests.simulator.mesh import Mesh
from tests.simulator.network import Network
from tests.simulator.program import Program
from tests.simulator.stand_ins import Models, Rosters
from tests.simulator.worker import Worker


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

    def write(self, level: Any, text: str, source: str = "") -> None:
        self._note(f"{level} {text}")


class Node:
    """One life of a Mac's node, as `core.node.service` puts it together."""

    cluster: PlanLeader
    following: RosterEnforcement
    switchboard: MessageRouter

    def __init__(self, home: Mac, network: Network) -> None:
        self.home = home
        self.process = Process(network.loop, f"{home.name} node")
        own, store, own_id = home.identity, home.store, home.device_id
        self.bus = _Bus(lambda event: home.watch(self, event))
        self.journal = _Journal(home.note, home.name, self.bus)
        self.tasks = Tasks(self.journal, asyncio.Event())
        sightings, models, seen = Sightings(lambda _: True), Models(), SeenMacs(NOWHERE)
        self.book = AddressBook(sightings)
        self.standing = TrustAssessment(
            store, seen, own_id, NOWHERE, other_model=lambda mac: self.cluster.mismatch(mac)
        )
        here = Peer(
            device_id=own_id,
            name=home.name,
            budget_bytes=home.budget_gb * GB,
            state="connected",
            trust="paired",
            is_self=True,
            found_by="self",
        )
        self.peers = PeerTable(own, store, self.standing, seen, sightings, self.book, self.bus, here)
        self.mesh = cast(Any, Mesh)(
            own_id,
            self.process,
            network,
            store,
            status=self.peers.status,
            on_change=self._on_change,
            on_roster=lambda: self.following.follow(),
            on_message=lambda device_id, message: self.switchboard.message(device_id, message),
            on_down=lambda device_id, error: self.switchboard.down(device_id, error),
        )
        self.supervisor = Supervisor(
            own,
            "",
            self.journal,
            self.tasks,
            on_report=lambda report: self.switchboard.report(report),
            on_death=lambda error: self.switchboard.died(error),
        )
        self.member = PlanMember(
            own_id,
            self.mesh,
            self.supervisor,
            models,  # type: ignore[arg-type]
            self.journal,
            self.tasks,
            cluster=lambda: b"",
            check_trust=lambda plan: self.following.check(plan),
            key_limits=KEY_LIMITS,
        )
        self.cluster = PlanLeader(own_id, self.mesh, self.member, self.bus, self.journal, self.tasks)
        self.answers = Answers(self.cluster, self.supervisor, self.bus, self.journal, self.tasks, home.disk, b"")  # type: ignore[arg-type]
        self.sessions = SavedSessions(self.cluster, self.supervisor, self.answers, self.journal, NOWHERE, b"")
        self.planning = Planning(
            models,  # type: ignore[arg-type]
            models,  # type: ignore[arg-type]
            self.peers,
            self.cluster,
            models,  # type: ignore[arg-type]
            ThroughputHistory(NOWHERE),
            lambda plan: self.following.check(plan),
        )
        self.rescue = RecoveryDriver(
            self.planning, self.peers, self.cluster, self.answers, self.sessions, self.bus, self.journal, self.tasks
        )
        self.following = RosterEnforcement(
            own.device_id,
            store,
            self.standing,
            book=self.book,
            mesh=self.mesh,
            peers=self.peers,
            cluster=self.cluster,
            member=self.member,
            answers=self.answers,
            sessions=self.sessions,
            journal=self.journal,
            tasks=self.tasks,
            restart=lambda: None,
        )
        self.switchboard = MessageRouter(
            cluster=self.cluster,
            member=self.member,
            answers=self.answers,
            sessions=self.sessions,
            rescue=self.rescue,
            trusting=None,  # type: ignore[arg-type]
            speed=SpeedTests(own_id, self.mesh, self.bus, self.tasks),
            transfers=Transfers(
                own_id,
                ModelInventory(own_id, models, self.mesh, self.bus),  # type: ignore[arg-type]
                ModelCopies(models, self.mesh, NOWHERE),  # type: ignore[arg-type]
                self.mesh,
                NOWHERE,
                bus=self.bus,
                journal=self.journal,
                tasks=self.tasks,
            ),
            peers=self.peers,
            bus=self.bus,
            journal=self.journal,
            tasks=self.tasks,
            is_forked=lambda: False,
        )
        self.cluster.listen(self.rescue)
        self.member.when_own(tell=self.cluster.handle_message, unlinked=lambda report: self.switchboard.report(report))
        self.process.soon(self._start)

    def _start(self) -> None:
        self.peers.attach(self.mesh, self.supervisor, self.member, self.home.device_id)
        self.mesh.start()
        self.supervisor.start()
        if self.home.number == 0:  # nobody else leads a plan here
            self.tasks.essential("The watch over answers", self.rescue.watch)
            self.tasks.essential("The watch over trust", self._watch)

    async def _watch(self) -> None:
        while True:
            self.following.enforce()
            await asyncio.sleep(4.0)

    def _on_change(self, device_id: str) -> None:
        self.peers.refresh(device_id)
        self.rescue.changed(device_id)


class Mac:
    """`load_s`: what its worker takes to load; `fails`: how many of the next loads run out of memory."""

    def __init__(
        self,
        number: int,
        size: int,
        network: Network,
        random: Random,
        *,
        budget_gb: int,
        note: Callable[[str], None],
        watch: Callable[[Node, AnyEvent], None],
    ) -> None:
        self.number, self.name, self.identity = number, NAMES[number], mac(number)
        self.device_id = self.identity.text_id
        self.store, self.disk = Rosters(chain(size)), Disk()
        self.budget_gb, self.note, self.watch = budget_gb, note, watch
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
        """How the plan is that it leads, as a person sees it."""
        recovery = self.node.bus.now.recovery
        return recovery.state if recovery else "running"

    @property
    def is_over(self) -> bool:
        """Whether it leads no plan, and none is being rescued."""
        return self.is_up and self.state in ("running", "parked") and self.node.cluster.plan is None

    def boot(self) -> None:
        """The node starts anew."""
        if not self.is_up:
            self.node = Node(self, self._network)

    def kill_node(self) -> None:
        """kill -9; its worker ends by itself."""
        self.node.process.kill()
        self.node.mesh.hang_up()
        if self.worker:
            self.worker.process.soon(self.worker.die, 0, after=0.001)

    def power_cut(self) -> None:
        """Nobody is told, and what was not forced to the disk may be gone."""
        self.node.process.kill()
        if self.worker:
            self.worker.die(-9, silently=True)
        self.disk.power_cut(self._random)

    def processes(self) -> list[Process]:
        """Its node and its worker."""
        return [self.node.process, *([self.worker.process] if self.worker else [])]

    def run_worker(self) -> Program:
        """Its node starts a worker."""
        self.worker = Worker(self.device_id, self.node.process, self._network, self._random, self.load_s)
        self.worker.load_fails, self.fails = self.fails > 0, max(0, self.fails - 1)
        self.worker.process.is_stopped = self.node.process.is_stopped
        return self.worker.program
