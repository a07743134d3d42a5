"""This Mac's stage in a plan of any head: the worker loads and links, the node checks files."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from core.errors import BadModel, Busy, LinkLost, MaclusterError, NodeError, NotLoaded, Problem, ProtocolError
from core.events import Plan, Stage
from core.link.network_paths import NetworkPath
from core.node.base.context import NodeContext
from core.node.base.node_message import to_frame
from core.node.base.signals import Signal
from core.node.disks.hub_comparison import HubComparison
from core.node.disks.local_models import LocalModels
from core.node.disks.mac_messages import OnePerMac
from core.node.peers.mesh import Mesh
from core.node.peers.paths import Paths
from core.node.peers.stage_state import HeldStage, PlanId, files_hash
from core.node.peers.worker_state import WorkerState
from core.node.ring import messages
from core.node.ring.outgoing_link import OutgoingLink
from core.node.ring.worker_supervisor import Supervisor, WorkerReported
from core.plan.topology import has_ranks, is_ring
from core.settings import MAX_CONTROL_BODY
from core.version import compute_hash, package_version, program_version
from core.worker import messages as worker

MAX_STAGES = 64
GRACE_S = 30.0
MEET_S = 2.0
BEGIN_S = 5.0  # a worker still busy by then is replaced, and reads everything again
LOOK_S = 0.1


class OwnStageChanged(Signal, frozen=True):
    """This Mac's stage of a plan that this Mac leads changed."""

    stage: HeldStage


class StageTaken(Signal, frozen=True):
    """This Mac is about to load that stage of `plan`."""

    plan: Plan
    index: int


class PlanMember:
    """The plan that this Mac's worker serves, kept in `worker.plan`; this Mac or another one leads it. Its head gets
    the state of the stage, kept in `worker.stages`, whenever that changes.
    """

    def __init__(
        self,
        node: NodeContext,
        mesh: Mesh,
        paths: Paths,
        supervisor: Supervisor,
        worker: WorkerState,
        models: LocalModels,
        comparison: HubComparison,
    ) -> None:
        self._device_id, self._store, self._assessment = node.own_id, node.store, node.assessment
        self._signals, self._journal, self._tasks = node.signals, node.journal, node.tasks
        self._key_limits = node.config.key_limits
        self._mesh, self._paths, self._supervisor, self._worker = mesh, paths, supervisor, worker
        self._models, self._comparison = models, comparison
        self._head: str | None = None
        self._index, self._first_gen, self._directory = 0, 0, Path()
        self._released: dict[str, int] = {}
        self._orders = OnePerMac(self._prepare_for)
        self._checking: asyncio.Task[None] | None = None
        self._letting_go: asyncio.Task[None] | None = None  # runs while the head is gone
        self._linking: asyncio.Task[None] | None = None
        self._outgoing = OutgoingLink()
        self._step = 0

    async def prepare_own(self, load: worker.Load, number: int) -> None:
        """Load a stage of this Mac's own plan. Raises ModelError, NodeError, WorkerDied, NotLoaded."""
        said = self._worker.stages.get(self._device_id)
        if said is None or said.plan.number != number:
            await self._prepare(self._device_id, number, load)

    async def prepare(self, head: str, order: messages.PrepareStage) -> None:
        """Load a stage for another Mac: one order at a time for each head, and only the last waiting one counts."""
        await self._orders.take(head, order)

    async def _prepare_for(self, head: str, order: messages.PrepareStage) -> None:
        said = self._worker.stages.get(head)
        if said and said.plan == order.plan_id(head):  # the head did not hear it
            await self._say(said)
            return
        try:
            check_compute(order.compute)
            plan = order.plan()
            check_order(plan, order.index, head, self._device_id)
            self._assessment.check(plan)
            directory = await self._models.find_same(plan.model, plan.fingerprint)
            self._check_free(head, plan)
            await self._prepare(head, order.number, worker.Load(plan=plan, index=order.index, directory=str(directory)))
        except MaclusterError as error:
            await self._refuse(head, order, error.problem)

    async def refuse(self, head: str, order: messages.PrepareStage) -> None:
        if head == self._head:
            self._forget()
        defect = NodeError("it could not prepare its layers because of a defect.", "Its log says where.")
        await self._refuse(head, order, defect.problem)

    async def _refuse(self, head: str, order: messages.PlanOrder, problem: Problem) -> None:
        await self._say(HeldStage(plan=order.plan_id(head), phase="lost", problem=problem))

    async def files_in(self, directory: Path) -> dict[str, str]:
        return await self._models.manifest(directory)

    async def list_files(self, head: str, request: messages.FilesRequest) -> None:
        stage = self._worker.stages.get(head)
        if head != self._head or stage is None or stage.plan != request.plan:
            return
        try:
            reply = messages.FilesReply(plan=request.plan, files=await self._models.manifest(self._directory))
            if len(to_frame(reply)[1]) > MAX_CONTROL_BODY:
                what = f"The model has {len(reply.files)} files, too many to compare."
                raise BadModel(what, "Choose a version of the model with fewer files.")
        except MaclusterError as error:
            await self._change(head, phase="lost", problem=error.problem)
        else:
            await self._mesh.send(head, reply)

    async def port(self) -> int:
        return await self._supervisor.ready()

    def link_prefill(self, plan: Plan, order: messages.LinkUp) -> None:
        """Link the worker to the prefill Mac of this Mac's plan."""
        if ways := self._paths.ways(plan.stages[1].device_id):
            self._connect(worker.ConnectPrefill, plan, order, ways)

    def unlink_prefill(self) -> None:
        if self._head == self._device_id:
            self._supervisor.send(worker.UnlinkPrefill())

    def prove_own(self, plan_gen: int) -> None:
        self._supervisor.send(worker.Prove(plan_gen=plan_gen))

    async def link(self, head: str, order: messages.LinkUp) -> None:
        try:
            plan = order.plan()
            is_held = head == self._head and self._worker.plan and same_plan(plan, self._worker.plan)
            if not is_held and any(stage.device_id == self._device_id for stage in plan.stages[1:]):
                raise NotLoaded("It no longer has that plan.")
        except MaclusterError as error:
            await self._refuse(head, order, error.problem)
            return
        if is_held:
            self._keep()
            await self.link_own(plan, order)

    async def release_for(self, head: str, order: messages.Release) -> None:
        self._released[head] = max(order.plan_gen, self._released.get(head, -1))
        if head != self._head:
            self._worker.stages.pop(head, None)
        else:
            self._journal.info(order.reason)
            await self.release(order.plan_gen)

    async def release_own(self, plan_gen: int) -> None:
        if self._head == self._device_id:
            await self.release(plan_gen)

    async def release(self, plan_gen: int) -> None:
        if self._worker.plan and self._head and plan_gen >= self._worker.plan.plan_gen:
            self._worker.stages.pop(self._head, None)
            self._forget()
            await self._supervisor.replace()

    def head_lost(self, device_id: str, reason: str) -> None:
        """A Mac is gone; if it led our plan, keep the layers for `GRACE_S`."""
        self._released.pop(device_id, None)
        self._orders.forget(device_id)  # no head waits for it or would release it
        if self._worker.plan and device_id == self._head:
            self._journal.warn(f"The Mac that leads the plan is gone: {reason}")
            self._keep()
            self._letting_go = self._tasks.spawn("Releasing a plan", self._let_go(self._worker.plan))

    async def head_left(self, device_id: str) -> None:
        if self._worker.plan and device_id == self._head:
            await self.release(self._worker.plan.plan_gen)

    async def _let_go(self, plan: Plan) -> None:
        await asyncio.sleep(GRACE_S)
        self._letting_go = None
        await self.release(plan.plan_gen)

    def _keep(self) -> None:
        if self._letting_go:
            self._letting_go.cancel()
            self._letting_go = None

    async def distrust(self, problem: Problem) -> None:
        """Free the worker from another head's plan if a Mac in it may see no more prompts; report why to the head."""
        plan, head = self._worker.plan, self._head
        if plan and head and head != self._device_id:
            self._journal.warn(f"This Mac leaves the plan of {plan.head.peer}: {problem.what}")
            await self.lose(problem)
            await self._supervisor.replace()

    async def reported(self, report: messages.StageEvent) -> None:
        """Take in what the worker reports, unless that is about links or layers of before."""
        if isinstance(report, worker.Linked):
            self._outgoing.linked(report.way)
        if self._worker.plan is None or self._head is None:
            return
        is_known = self._first_gen <= report.plan_gen <= self._worker.plan.plan_gen
        match report:
            case worker.Loading(done_bytes=done, total_bytes=total) if is_known:
                await self._change(self._head, phase="loading", done_bytes=done, total_bytes=total)
            case worker.Loaded() if is_known:
                await self._change(self._head, phase="loaded", loaded=report)
            case worker.Failed(problem=problem) if is_known:
                await self._change(self._head, phase="lost", problem=problem)
            case worker.Linked(plan_gen=gen, way=way) if gen == self._worker.plan.plan_gen:
                await self._change(self._head, phase="linked", path=way.kind)
            case worker.LinkBroken(plan_gen=gen, problem=problem) if gen == self._worker.plan.plan_gen:
                await self._change(self._head, phase="broken", problem=problem)

    async def lose(self, problem: Problem) -> None:
        """Forget the plan, and report that to its head."""
        head = self._head
        self._forget()
        if head:
            await self._change(head, phase="lost", problem=problem)

    async def _prepare(self, head: str, number: int, load: worker.Load) -> None:
        plan, directory = load.plan, Path(load.directory)
        before, led = self._worker.plan, self._head
        if before and led and led != head:  # the other head would wait for ever
            await self.lose(NotLoaded("It loads another model now.").problem)
        self._forget()
        self._worker.plan, self._head, self._index = plan, head, load.index
        self._first_gen, self._directory = plan.plan_gen, directory
        self._signals.emit(StageTaken(plan, load.index))
        await self._say(HeldStage(plan=PlanId(head, number)))
        await self._comparison.ensure(directory, plan.fingerprint, head)
        has_begun = False
        stays = before and before.fingerprint == plan.fingerprint and head == led and before.plan_gen < plan.plan_gen
        if before and stays and not has_ranks(before):  # ranks keep their group as long as they live
            # layers that stay here stay loaded
            has_begun = await self._supervisor.begins(load, BEGIN_S)
        if before and not has_begun and self._worker.plan is plan:
            await self._supervisor.replace()
        port = await self._supervisor.ready()
        if self._worker.plan is not plan:
            raise NotLoaded(f"{plan.model} was released before it was loaded.")
        if not has_begun:
            self._supervisor.send(load)
        if len(plan.stages) > 1:
            self._checking = self._tasks.spawn_essential("The check of files", self._check(head, directory))
        await self._change(head, port=port)

    async def _check(self, head: str, directory: Path) -> None:
        changes: dict[str, Any]
        try:
            changes = {"files": files_hash(await self._models.manifest(directory))}
        except MaclusterError as error:
            changes = {"phase": "lost", "problem": error.problem}
        self._checking = None  # the report may end the plan, which must not cancel the report
        await self._change(head, **changes)

    async def _change(self, head: str, **changes: Any) -> None:
        if (stage := self._worker.stages.get(head)) and stage.phase != "lost":
            await self._say(msgspec.structs.replace(stage, **changes))

    async def _say(self, stage: HeldStage) -> None:
        """Report the stage to its head at once; each ping to the head says it again."""
        head = stage.plan.head
        self._worker.stages[head] = stage
        if head == self._device_id:
            self._signals.emit(OwnStageChanged(stage))
        else:
            await self._mesh.send(head, messages.StageReport(stage=stage))

    def _forget(self) -> None:
        self._worker.plan = self._head = None
        self._keep()
        if self._linking:
            self._linking.cancel()
            self._linking = None
        if self._checking:
            self._checking.cancel()
            self._checking = None

    def _check_free(self, head: str, plan: Plan) -> None:
        """Serve one head at a time, unless it is gone, and none that has released the plan. Raises Busy, NotLoaded."""
        is_own = self._worker.begins or self._worker.led is not None
        if is_own or (self._worker.plan and self._head != head and not self._letting_go):
            raise Busy("That Mac serves a plan of another Mac.", "Unload it there.")
        if plan.plan_gen <= self._released.get(head, -1):
            raise NotLoaded(f"{plan.model} was released before it was loaded.")

    async def link_own(self, plan: Plan, order: messages.LinkUp) -> None:
        """Make the links of that generation, once."""
        stage = self._worker.stages.get(plan.head.device_id)
        if stage is None or stage.phase == "lost" or stage.link_gen >= plan.plan_gen:
            if stage:  # the head did not hear it
                await self._say(stage)
            return
        self._worker.plan = plan
        await self._change(plan.head.device_id, link_gen=plan.plan_gen, phase="loaded", problem=None)
        if self._linking:
            self._linking.cancel()
        self._linking = self._tasks.spawn_essential("Linking the ring", self._link_in_time(plan, order))

    def follow_paths(self) -> None:
        """Have the head link the ring again for a better path, or if its path is gone; measure paths while idle."""
        plan = self._worker.plan
        is_idle, self._step = self._step == self._worker.step, self._worker.step
        if plan is None or (direct := self._paths.direct(self._after(plan).device_id)) is None:
            return
        if why := self._outgoing.reason_to_move(direct, self._after(plan).peer):
            self._move(plan, direct, why)
        elif is_idle and (way := self._outgoing.to_measure(direct)):
            self._tasks.spawn("Measuring a path", self._measure(self._after(plan), way))
        elif ways := self._outgoing.to_try(direct, monotonic()):
            self._tasks.spawn("Timing the paths", self._time_paths(plan, ways))

    async def _measure(self, after: Stage, way: NetworkPath) -> None:
        path, rate = f"The {way.kind or 'direct'} path to {after.peer} at {way.host}", 0
        try:
            rate = await self._paths.rate(after.device_id, way)
            self._journal.info(f"{path} carries {rate * 8 / 1e6:.0f} Mbit/s or more.")
        except MaclusterError as error:
            self._journal.info(f"{path} could not be measured: {error.what}")
        finally:
            self._outgoing.measured(way, rate)

    async def _time_paths(self, plan: Plan, ways: Sequence[NetworkPath]) -> None:
        after = self._after(plan)
        tried = await self._paths.tried(after.device_id, ways)
        if self._worker.plan is plan and (why := self._outgoing.tried(tried, monotonic(), after.peer)):
            self._move(plan, ways, why)

    def _move(self, plan: Plan, direct: Sequence[NetworkPath], why: str) -> None:
        self._outgoing.offer(direct)
        self._say_broken(plan, why)

    def _after(self, plan: Plan) -> Stage:
        return plan.stages[(self._index + 1) % len(plan.stages)]

    def _say_broken(self, plan: Plan, what: str) -> None:
        self._signals.emit(WorkerReported(worker.LinkBroken(plan_gen=plan.plan_gen, problem=LinkLost(what).problem)))

    async def _link_in_time(self, plan: Plan, order: messages.LinkUp) -> None:
        """Wait a moment for the control link: the two Macs may be dialling each other."""
        after = self._after(plan)
        loop = asyncio.get_running_loop()
        until = loop.time() + MEET_S
        while not (ways := self._paths.ways(after.device_id)):
            if loop.time() >= until:
                own = plan.stages[self._index].peer
                self._say_broken(plan, f"{own} and {after.peer} are not linked with each other.")
                return
            await asyncio.sleep(LOOK_S)
        self._outgoing.offer(self._paths.direct(after.device_id) or ())
        self._connect(worker.Connect, plan, order, self._outgoing.rated(ways))

    def _connect(
        self, kind: type[worker.Connect], plan: Plan, order: messages.LinkUp, ways: Sequence[NetworkPath]
    ) -> None:
        self._supervisor.send(
            kind(
                plan=plan,
                digest=order.digest,
                cluster=self._store.cluster().encode(),
                ways=tuple(ways),
                next_port=order.port,
                key_limits=self._key_limits,
            )
        )


def check_compute(of_head: str) -> None:
    """Check that this Mac computes as the head does. Raises NodeError."""
    if of_head != compute_hash():
        what = f"its macluster {program_version()} with mlx-lm {package_version('mlx-lm')} computes otherwise."
        raise NodeError(what, "Run the same version of macluster on every Mac: `macluster peers` shows them.")


def check_order(plan: Plan, index: int, head: str, own: str) -> None:
    """Check a head's order: a ring of its topology, its own stage first, ours at `index`. Raises ProtocolError."""
    ids = [stage.device_id for stage in plan.stages]
    fits = 1 <= index < len(ids) <= MAX_STAGES and 0 < plan.plan_gen < 1 << 31
    if not (fits and len(set(ids)) == len(ids) and (ids[0], ids[index]) == (head, own) and is_ring(plan)):
        raise ProtocolError("The plan is not valid.")


def same_plan(later: Plan, earlier: Plan) -> bool:
    gen = later.plan_gen
    return gen >= earlier.plan_gen and later == msgspec.structs.replace(earlier, plan_gen=gen)
