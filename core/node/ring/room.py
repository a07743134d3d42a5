"""The room of plans: made, handed out to the Macs of a ring, proved, measured and traced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from aiohttp import web

from core.errors import Problem
from core.events import HopSample, PathKind, Plan
from core.node.base.context import NodeContext
from core.node.base.local_server import route
from core.node.base.message_table import MessageRow, receives
from core.node.base.room import Room
from core.node.disks.room import DisksRoom
from core.node.peers.mesh import LinkEnded, MacLeft
from core.node.peers.peer_table import PeerTable
from core.node.peers.room import PeersRoom
from core.node.ring import messages as wire
from core.node.ring.disk_trimming import Trimming
from core.node.ring.hub_model_previews import HubModelPreviews
from core.node.ring.plan_leader import PlanLeader
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
from core.worker import messages as reports
from core.worker.messages import StageSample


@dataclass(frozen=True, kw_only=True)
class RingRoom(Room):
    """Plans of this Mac, and its stages of others' plans."""

    peers: PeerTable
    supervisor: Supervisor
    member: PlanMember
    leader: PlanLeader
    tracing: Tracing
    trimming: Trimming
    throughput: ThroughputHistory
    planning: Planning
    known: HubModelPreviews

    @classmethod
    def build(cls, node: NodeContext, peers: PeersRoom, disks: DisksRoom) -> Self:
        supervisor = Supervisor(node, peers.worker)
        member = PlanMember(node, peers.mesh, peers.paths, supervisor, peers.worker, disks.models, disks.comparison)
        profiles, throughput = SplitProfiles(node.home.split_profiles), ThroughputHistory(node.home.throughput)
        inventory, table, transfers = disks.inventory, peers.table, disks.transfers
        files = StageFiles(inventory, profiles, transfers, disks.comparison)
        leader = PlanLeader(node, peers.mesh, member, files, peers.worker)
        planning = Planning(node, profiles, inventory, files, table, leader, throughput, supervisor.reported)
        return cls(
            node=node,
            peers=table,
            supervisor=supervisor,
            member=member,
            leader=leader,
            tracing=Tracing(node, peers.mesh, supervisor, peers.worker, leader),
            trimming=Trimming(node, inventory, disks.copies.serving, transfers.own, profiles, leader),
            throughput=throughput,
            planning=planning,
            known=HubModelPreviews(inventory, table, planning.speeds),
        )

    def messages(self) -> Iterable[MessageRow]:
        leader, tracing = self.leader.handle_message, self.tracing.handle_message
        return (
            receives(wire.PrepareStage, self._prepare_stage),
            receives(wire.LinkUp, self.member.link),
            receives(wire.Release, self._release),
            receives(wire.Prepared, leader),
            receives(wire.Checked, leader),
            receives(wire.Reported, leader),
            receives(wire.StageLost, leader),
            receives(wire.ClockRequest, tracing),
            receives(wire.ClockReply, tracing),
            receives(wire.PeerTraceRequest, tracing),
            receives(wire.TraceReply, tracing),
        )

    def routes(self) -> Iterable[web.RouteDef]:
        return (
            route("POST", "/v1/plan", lambda asked: self.planning.preview(asked, parts=asked.parts), PreviewRequest),
            route("GET", "/v1/models/known", self.known.choices),
            route("GET", "/v1/disks", self.planning.disks),
            route("POST", "/v1/trim", self.trimming.trim, TrimRequest),
            route("POST", "/v1/trace", self.tracing.trace, TraceRequest),
        )

    def subscribe(self) -> None:
        signals = self.node.signals
        signals.on_awaited(LinkEnded, self._link_ended)
        signals.on_awaited(MacLeft, self._mac_left)
        signals.on(WorkerReported, self._worker_reported)
        signals.on(WorkerEnded, self._worker_ended)
        signals.on(PlanDistrusted, self._distrusted)

    def _prepare_stage(self, head: str, order: wire.PrepareStage) -> None:
        """Prepare a stage; refuse it on a defect, since no other Mac may stop this node."""
        tasks = self.node.tasks

        def refuse() -> None:
            tasks.spawn("Refusing a stage", self.member.refuse(head, order.plan_gen))

        tasks.spawn("Preparing a stage", self.member.prepare(head, order), on_defect=refuse)

    def _release(self, head: str, order: wire.Release) -> None:
        # in the background: ending a worker takes up to 2 s
        self.node.tasks.spawn("Releasing a plan", self.member.release_for(head, order))

    async def _mac_left(self, mac: MacLeft) -> None:
        self.node.tasks.spawn("Releasing a plan", self.member.head_left(mac.device_id))

    async def _link_ended(self, ended: LinkEnded) -> None:
        device_id, why = ended.device_id, ended.error.what
        what = f"{self.node.bus.now.name_of(device_id)} is gone: {why}"
        problem = Problem(kind="LinkLost", what=what, fix="Load the model again without it.")
        await self.leader.lost(device_id, problem)
        self.member.head_lost(device_id, why)

    def _worker_reported(self, said: WorkerReported) -> None:
        node, leader = self.node, self.leader
        match report := said.report:
            case reports.Samples(stages=stages) if leader.plan and len(stages) == len(leader.plan.stages):
                for hop in hop_samples(leader.plan, stages, self.peers.rtt, leader.path_from):
                    node.bus.publish(hop)
            case reports.Loading() | reports.Loaded() | reports.Failed() | reports.Linked() | reports.LinkBroken():
                node.tasks.spawn_essential("A report of the worker", self.member.reported(report))
            case reports.PrefillLinked() | reports.PrefillBroken():
                leader.prefill_reported(report)
            case reports.ReadBeside(request_id=name, tokens=0):
                node.journal.warn(f"The ring reads the prompt of {name[:8]}: the prefill Mac failed.")
            case reports.Proving():
                leader.proving()
            case reports.Proved() | reports.Unproved():
                node.tasks.spawn_essential("The proof of the ring", leader.proved(report))

    def _worker_ended(self, ended: WorkerEnded) -> None:
        self.node.journal.error(ended.error.what)
        self.node.tasks.spawn_essential("The end of the worker", self.member.worker_died(ended.error.problem))

    def _distrusted(self, plan: PlanDistrusted) -> None:
        tasks = self.node.tasks
        tasks.spawn_essential("The end of a plan", self.leader.distrusted(plan.device_id, plan.problem))
        tasks.spawn_essential("Leaving a plan", self.member.distrust(plan.problem))


def hop_samples(
    plan: Plan,
    stages: Sequence[StageSample],
    rtt: Callable[[str, str], float | None],
    path: Callable[[str], PathKind] = lambda _: "",
) -> list[HopSample]:
    """One sample per hop of the ring; `path` gives the kind of network of a Mac's outgoing link."""
    hops = []
    for index, sent in enumerate(stages):
        after = (index + 1) % len(stages)
        source, target, received = plan.stages[index], plan.stages[after], stages[after]
        hops.append(
            HopSample(
                source=source.device_id,
                target=target.device_id,
                frames=sent.frames,
                bytes=sent.bytes,
                compute_s=sent.compute_s,
                codec_s=sent.codec_s,
                seal_s=sent.seal_s,
                send_s=sent.send_s,
                wait_s=received.wait_s,
                open_s=received.open_s,
                since=stages[0].since,
                wire_s=received.wire_s,
                rtt_s=rtt(source.device_id, target.device_id),
                queue=received.queue,
                path=path(source.device_id),
            )
        )
    return hops
