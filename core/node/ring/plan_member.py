"""This Mac's stage in a plan of any head: the worker loads and links, the node checks files."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

import msgspec

from core.errors import BadModel, Busy, LinkLost, MaclusterError, NodeError, NotLoaded, Problem, ProtocolError
from core.events import Plan, Stage
from core.link.network_paths import NetworkPath
from core.node.base.context import NodeContext
from core.node.base.node_message import to_frame
from core.node.base.signals import AwaitedSignal, Signal
from core.node.disks.hub_comparison import HubComparison
from core.node.disks.local_models import LocalModels
from core.node.disks.mac_messages import OnePerMac
from core.node.peers.mesh import Mesh
from core.node.peers.paths import Paths
from core.node.peers.worker_state import WorkerState
from core.node.ring import messages
from core.node.ring.outgoing_link import OutgoingLink
from core.node.ring.worker_supervisor import Supervisor, WorkerReported
from core.plan.topology import has_ranks, is_ring
from core.settings import MAX_CONTROL_BODY
from core.version import compute_hash, package_version, program_version
from core.worker.messages import Connect, ConnectPrefill, LinkBroken, Linked, Load, Prove, UnlinkPrefill

MAX_STAGES = 64
GRACE_S = 30.0
MEET_S = 2.0
BEGIN_S = 5.0  # a worker still busy by then is replaced, and reads everything again
LOOK_S = 0.1


class OwnStageReported(AwaitedSignal, frozen=True):
    """This Mac's stage reports on a plan that this Mac leads."""

    word: messages.StageWord


class StageTaken(Signal, frozen=True):
    """This Mac is about to load that stage of `plan`."""

    plan: Plan
    index: int


class PlanMember:
    """The plan that this Mac's worker serves, kept in `worker.plan`; this Mac or another one leads it."""

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
        self._index = 0
        self._released: dict[str, int] = {}
        self._orders = OnePerMac(self._prepare_for)
        self._checking: asyncio.Task[None] | None = None
        self._letting_go: asyncio.Task[None] | None = None  # runs while the head is gone
        self._linking: asyncio.Task[None] | None = None
        self._outgoing = OutgoingLink()
        self._step = 0

    async def prepare_own(self, load: Load) -> int:
        return await self._prepare(self._device_id, load)

    async def prepare(self, head: str, order: messages.PrepareStage) -> None:
        """Load a stage for another Mac: one order at a time for each head, and only the last waiting one counts."""
        await self._orders.take(head, order)

    async def _prepare_for(self, head: str, order: messages.PrepareStage) -> None:
        try:
            check_compute(order.compute)
            plan = order.plan()
            check_order(plan, order.index, head, self._device_id)
            self._assessment.check(plan)
            directory = await self._models.find_same(plan.model, plan.fingerprint)
            self._check_free(head, plan)
            port = await self._prepare(head, Load(plan=plan, index=order.index, directory=str(directory)))
        except MaclusterError as error:
            await self._mesh.send(head, messages.StageLost(plan_gen=order.plan_gen, problem=error.problem))
            return
        await self._mesh.send(head, messages.Prepared(plan_gen=order.plan_gen, port=port))

    async def refuse(self, head: str, plan_gen: int) -> None:
        if head == self._head:
            self._forget()
        problem = NodeError("it could not prepare its layers because of a defect.", "Its log says where.").problem
        await self._mesh.send(head, messages.StageLost(plan_gen=plan_gen, problem=problem))

    async def files_in(self, directory: Path) -> dict[str, str]:
        return await self._models.manifest(directory)

    async def port(self) -> int:
        return await self._supervisor.ready()

    def link_prefill(self, plan: Plan, order: messages.LinkUp) -> None:
        """Link the worker to the prefill Mac of this Mac's plan."""
        if ways := self._paths.ways(plan.stages[1].device_id):
            self._connect(ConnectPrefill, plan, order, ways)

    def unlink_prefill(self) -> None:
        if self._head == self._device_id:
            self._supervisor.send(UnlinkPrefill())

    def prove_own(self, plan_gen: int) -> None:
        self._supervisor.send(Prove(plan_gen=plan_gen))

    async def link(self, head: str, order: messages.LinkUp) -> None:
        try:
            plan = order.plan()
        except MaclusterError as error:
            await self._mesh.send(head, messages.StageLost(plan_gen=order.plan_gen, problem=error.problem))
            return
        if head == self._head and self._worker.plan and same_plan(plan, self._worker.plan):
            self._keep()
            self.link_own(plan, order)
        elif any(stage.device_id == self._device_id for stage in plan.stages[1:]):
            problem = NotLoaded("It no longer has that plan.").problem
            await self._mesh.send(head, messages.StageLost(plan_gen=plan.plan_gen, problem=problem))

    async def release_for(self, head: str, order: messages.Release) -> None:
        self._released[head] = max(order.plan_gen, self._released.get(head, -1))
        if head == self._head:
            self._journal.info(order.reason)
            await self.release(order.plan_gen)

    async def release_own(self, plan_gen: int) -> None:
        if self._head == self._device_id:
            await self.release(plan_gen)

    async def release(self, plan_gen: int) -> None:
        if self._worker.plan and plan_gen >= self._worker.plan.plan_gen:
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
            self._forget()
            await self._mesh.send(head, messages.StageLost(plan_gen=plan.plan_gen, problem=problem))
            await self._supervisor.replace()

    async def reported(self, report: messages.StageReport) -> None:
        if isinstance(report, Linked):
            self._outgoing.linked(report.way)
        if self._worker.plan and self._head:
            await self._report(self._head, messages.Reported(plan_gen=self._worker.plan.plan_gen, report=report))

    async def worker_died(self, problem: Problem) -> None:
        plan, head = self._worker.plan, self._head
        self._forget()
        if plan and head:
            await self._report(head, messages.StageLost(plan_gen=plan.plan_gen, problem=problem))

    async def _prepare(self, head: str, load: Load) -> int:
        plan, directory = load.plan, Path(load.directory)
        before, led = self._worker.plan, self._head
        self._forget()
        self._worker.plan, self._head, self._index = plan, head, load.index
        self._signals.emit(StageTaken(plan, load.index))
        if before and led and led != head:  # the other head would wait for ever
            taken = NotLoaded("It loads another model now.").problem
            await self._report(led, messages.StageLost(plan_gen=before.plan_gen, problem=taken))
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
            self._checking = self._tasks.spawn_essential("The check of files", self._check(head, plan, directory))
        return port

    async def _check(self, head: str, plan: Plan, directory: Path) -> None:
        word: messages.StageWord
        try:
            word = messages.Checked(plan_gen=plan.plan_gen, files=await self._models.manifest(directory))
            if len(to_frame(word)[1]) > MAX_CONTROL_BODY:
                what = f"{plan.model} has {len(word.files)} files, too many to compare."
                raise BadModel(what, "Choose a version of the model with fewer files.")
        except MaclusterError as error:
            word = messages.StageLost(plan_gen=plan.plan_gen, problem=error.problem)
        self._checking = None  # the report may end the plan, which must not cancel the report
        await self._report(head, word)

    async def _report(self, head: str, word: messages.StageWord) -> None:
        if head != self._device_id:
            await self._mesh.send(head, word)
        else:
            await self._signals.deliver(OwnStageReported(word))

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

    def link_own(self, plan: Plan, order: messages.LinkUp) -> None:
        self._worker.plan = plan
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
        self._signals.emit(WorkerReported(LinkBroken(plan_gen=plan.plan_gen, problem=LinkLost(what).problem)))

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
        self._connect(Connect, plan, order, self._outgoing.rated(ways))

    def _connect(self, kind: type[Connect], plan: Plan, order: messages.LinkUp, ways: Sequence[NetworkPath]) -> None:
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
