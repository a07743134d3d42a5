"""The per-Mac service: builds its parts, joins them, runs them, and takes them down in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from core.errors import LinkLost, MaclusterError, Problem, WorkerDied
from core.events import Peer
from core.mac.chip import chip_name
from core.mac.memory import physical_bytes
from core.node.anatomies import Anatomies
from core.node.answers import Answers
from core.node.bus import Bus
from core.node.cluster import Cluster
from core.node.commands import Commands
from core.node.discovery import Discovery, Sighting
from core.node.hops import hop_samples
from core.node.introductions import Introductions
from core.node.journal import Journal
from core.node.local_api import LocalApi
from core.node.member import Member
from core.node.mesh import Mesh
from core.node.messages import AnyMessage, Checked, LinkUp, Prepare, Prepared, Release, Reported, StageLost
from core.node.models import Models
from core.node.peers import Peers
from core.node.supervisor import Supervisor
from core.settings import BEAT_S, Home
from core.trust.files import private_folder
from core.trust.identity import Identity, load_or_create
from core.trust.roster import Member as RosterMember
from core.trust.roster import RosterStore
from core.worker.messages import (
    Broken,
    Done,
    Failed,
    Linked,
    Listening,
    Loaded,
    Loading,
    Prefilled,
    Proved,
    Report,
    Samples,
    Token,
    Unproved,
)


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a node is started. `host` is the address it listens on; `budget_bytes` what its worker may use."""

    home: Home
    name: str
    host: str
    port: int
    budget_bytes: int
    memory_bytes: int = 0
    chip: str = ""
    model_roots: tuple[Path, ...] = ()
    multicast: bool = True


class Node:
    """One Mac's node. `run` returns when `stop` is called."""

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        home = config.home
        private_folder(home.root)
        self._identity: Identity = load_or_create(home.identity)
        self._store = RosterStore(home.rosters)
        self._stopping = asyncio.Event()
        self._on_stop: Callable[[], object] = lambda: None
        self._tasks: set[asyncio.Task[None]] = set()
        self._bus = Bus()
        self._journal = Journal(home.log, config.name, self._bus)
        self._build_parts(home)
        self._cluster.when(ready=self._answers.pump, trouble=self._answers.stop_all)
        self._member.when_own(tell=self._cluster.heard, unlinked=self._on_report)

    def _build_parts(self, home: Home) -> None:
        config, own_id = self._config, self._identity.text_id
        self._peers = Peers(self._identity, self._store, self._bus, self._own_peer())
        self._models = Models([home.models, *config.model_roots], home.hashes)
        self._mesh = Mesh(
            self._identity,
            self._store,
            self._journal,
            status=self._peers.status,
            on_change=self._peers.refresh,
            on_message=self._on_message,
            on_down=self._on_down,
        )
        self._supervisor = Supervisor(
            self._identity, config.host, self._journal, on_report=self._on_report, on_death=self._on_death
        )
        self._member = Member(
            own_id, self._mesh, self._supervisor, self._models, self._journal, lambda: self._store.cluster().encode()
        )
        self._cluster = Cluster(own_id, self._mesh, self._member, self._bus, self._journal)
        self._answers = Answers(
            self._cluster,
            self._supervisor,
            self._bus,
            self._journal,
            home.tokens,
            self._identity.secret("token log"),
        )
        self._introductions = Introductions(
            self._identity, config.name, self._store, self._bus, config.host, self._on_paired
        )
        commands = Commands(
            self._models,
            Anatomies(home.anatomies),
            self._peers,
            self._cluster,
            self._answers,
            self._introductions,
            self._on_address,
        )
        self._api = LocalApi(commands, self._bus)
        self._discovery = Discovery(own_id, config.name, config.host, self._on_sight)

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

    async def run(self) -> None:
        """Start everything, wait for `stop`, take everything down."""
        port = await self._mesh.start(self._config.host, self._config.port)
        self._peers.attach(self._mesh, self._supervisor, f"{self._config.host}:{port}")
        self._supervisor.start()
        await self._api.start(self._config.home.socket)
        self._spawn(self._advertise(port))
        self._spawn(self._watch())
        self._journal.info(f"Node {self._identity.text_id[:8]} is up, key kept by {self._identity.storage}.")
        try:
            await self._stopping.wait()
        finally:
            await self._take_down()

    def stop(self) -> None:
        """Make `run` return."""
        self._stopping.set()
        self._on_stop()

    def when_stopping(self, call: Callable[[], object]) -> None:
        """What else to do when `stop` is called."""
        self._on_stop = call

    async def _take_down(self) -> None:
        self._answers.stop_all(Problem(kind="NodeError", what="The node of this Mac was ended."))
        await self._introductions.stop()
        await self._discovery.stop()
        await self._mesh.stop("Its node was ended.")
        await self._supervisor.stop()
        await self._api.stop()
        self._config.home.socket.unlink(missing_ok=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _advertise(self, port: int) -> None:
        if not self._config.multicast:
            return
        try:
            await self._discovery.start(port)
        except OSError as error:
            self._journal.warn(f"Bonjour is not to be had here ({error}); give addresses by hand.")

    async def _watch(self) -> None:
        """Memory and processes of this Mac, for the readers."""
        while True:
            self._peers.refresh_own()
            self._peers.refresh_trust()
            await asyncio.sleep(2 * BEAT_S)

    def _on_sight(self, sighting: Sighting) -> None:
        self._peers.sighted(sighting)
        self._mesh.know(sighting.device_id, sighting.host, sighting.port)

    def _on_address(self, sighting: Sighting) -> None:
        self._peers.sighted(sighting, by_address=True)
        self._mesh.know(sighting.device_id, sighting.host, sighting.port)

    async def _on_paired(self, member: RosterMember) -> None:
        self._journal.info(f"Paired with {member.name}; the roster is at epoch {self._store.cluster().roster.epoch}.")
        await self._mesh.roster_changed()
        for peer in self._bus.now.peers:
            self._peers.refresh(peer.device_id)

    async def _on_message(self, device_id: str, message: AnyMessage) -> None:
        match message:
            case Prepare():
                self._spawn(self._member.prepare(device_id, message))
            case LinkUp():
                self._member.link(device_id, message)
            case Release():
                self._spawn(self._member.release_for(device_id, message))  # ending a worker takes up to 2 s
            case Prepared() | Checked() | Reported() | StageLost():
                await self._cluster.heard(device_id, message)
            case _:
                return

    async def _on_down(self, device_id: str, error: LinkLost) -> None:
        name = next((p.name for p in self._bus.now.peers if p.device_id == device_id), device_id[:8])
        self._journal.warn(f"{name} is gone: {error.what}")
        self._peers.went(device_id, error.what)
        problem = Problem(kind="LinkLost", what=f"{name} is gone: {error.what}", fix="Load the model again without it.")
        await self._cluster.lost(device_id, problem)
        await self._member.head_lost(device_id, error.what)

    def _on_report(self, report: Report) -> None:
        match report:
            case Token() | Prefilled() | Done():
                self._answers.heard(report)
            case Samples(stages=stages) if self._cluster.plan and len(stages) == len(self._cluster.plan.stages):
                for hop in hop_samples(self._cluster.plan, stages, self._peers.rtt):
                    self._bus.publish(hop)
            case Loading() | Loaded() | Failed() | Linked() | Broken():
                self._spawn(self._member.reported(report))
            case Proved() | Unproved():
                self._spawn(self._cluster.proved(report))
            case Listening() | Samples():
                return

    def _on_death(self, error: WorkerDied) -> None:
        self._journal.error(f"{self._config.name}: {error.what}")
        self._spawn(self._member.worker_died(error.problem))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._guard(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        """A part that fails says so in the log; the node lives on."""
        try:
            await work
        except MaclusterError as error:
            self._journal.error(str(error))
