"""The room of plans: made, handed out to the Macs of a ring, proved, measured and traced."""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web

from core.node.base.context import NodeContext
from core.node.base.local_server import route
from core.node.base.message_table import MessageRow, receives
from core.node.base.room import Room
from core.node.disks.room import DisksRoom
from core.node.peers.mesh import LinkEnded, MacLeft
from core.node.peers.room import PeersRoom
from core.node.ring import messages as wire
from core.node.ring.disk_trimming import Trimming
from core.node.ring.plan_member import PlanMember
from core.node.ring.planning import Planning
from core.node.ring.ring_trace import Tracing
from core.node.ring.split_profiles import SplitProfiles
from core.node.ring.stage_files import StageFiles
from core.node.ring.throughput_history import ThroughputHistory
from core.node.ring.worker_supervisor import Supervisor, WorkerEnded, WorkerReported
from core.node.trust.roster_enforcement import PlanDistrusted
from core.requests.disks import TrimRequest
from core.requests.plans import PreviewRequest
from core.requests.trace import TraceRequest


class RingRoom(Room):
    """Plans of this Mac, and its stages of others' plans."""

    def __init__(self, node: NodeContext, peers: PeersRoom, disks: DisksRoom) -> None:
        super().__init__(node)
        worker, mesh, inventory, transfers = peers.worker, peers.mesh, disks.inventory, disks.transfers
        self.supervisor = up = Supervisor(node, worker)
        self.member = PlanMember(node, mesh, peers.paths, up, worker, disks.models, disks.comparison)
        profiles, self.throughput = SplitProfiles(node.home.split_profiles), ThroughputHistory(node.home.throughput)
        self.files = files = StageFiles(inventory, profiles, transfers, disks.comparison)
        self.tracing = Tracing(node, mesh, up, worker)
        self.trimming = Trimming(node, inventory, disks.copies.serving, transfers.own, profiles, worker)
        self.planning = Planning(node, profiles, inventory, files, peers.table, worker, self.throughput, up.reported)

    def messages(self) -> Iterable[MessageRow]:
        tracing = self.tracing.handle_message
        return (
            receives(wire.PrepareStage, self._prepare_stage),
            receives(wire.LinkUp, self.member.link),
            receives(wire.Release, self._release),
            receives(wire.FilesRequest, self.member.list_files),
            receives(wire.ClockRequest, tracing),
            receives(wire.ClockReply, tracing),
            receives(wire.PeerTraceRequest, tracing),
            receives(wire.TraceReply, tracing),
        )

    def routes(self) -> Iterable[web.RouteDef]:
        return (
            route("POST", "/v1/plan", lambda asked: self.planning.preview(asked, parts=asked.parts), PreviewRequest),
            route("GET", "/v1/models/known", self.planning.known),
            route("GET", "/v1/disks", self.planning.disks),
            route("POST", "/v1/trim", self.trimming.trim, TrimRequest),
            route("POST", "/v1/trace", self.tracing.trace, TraceRequest),
        )

    def subscribe(self) -> None:
        signals, tasks = self.node.signals, self.node.tasks
        signals.on_awaited(LinkEnded, self._link_ended)
        signals.on_awaited(MacLeft, self._mac_left)
        signals.on(WorkerReported, self._worker_reported)
        signals.on(WorkerEnded, self._worker_ended)
        leave = self.member.distrust
        signals.on(PlanDistrusted, lambda plan: tasks.spawn_essential("Leaving a plan", leave(plan.problem)))

    def _prepare_stage(self, head: str, order: wire.PrepareStage) -> None:
        """Prepare a stage; refuse it on a defect, since no other Mac may stop this node."""
        tasks = self.node.tasks

        def refuse() -> None:
            tasks.spawn("Refusing a stage", self.member.refuse(head, order))

        tasks.spawn("Preparing a stage", self.member.prepare(head, order), on_defect=refuse)

    def _release(self, head: str, order: wire.Release) -> None:
        # in the background: ending a worker takes up to 2 s
        self.node.tasks.spawn("Releasing a plan", self.member.release_for(head, order))

    async def _mac_left(self, mac: MacLeft) -> None:
        self.node.tasks.spawn("Releasing a plan", self.member.head_left(mac.device_id))

    async def _link_ended(self, ended: LinkEnded) -> None:
        self.member.head_lost(ended.device_id, ended.error.what)

    def _worker_reported(self, said: WorkerReported) -> None:
        if isinstance(said.report, wire.StageEvent):
            self.node.tasks.spawn_essential("A report of the worker", self.member.reported(said.report))

    def _worker_ended(self, ended: WorkerEnded) -> None:
        self.node.journal.error(ended.error.what)
        self.node.tasks.spawn_essential("The end of the worker", self.member.lose(ended.error.problem))
