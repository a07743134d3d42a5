"""The head's side of a plan: hands out stages, follows their reports, reports when the ring is ready or broken."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic

import msgspec

from core.errors import LinkLost, LinkTimeout, MaclusterError, NotLoaded, Problem
from core.events import PathKind, Plan, PlanFailed, PlanLoaded, PlanProposed, PlanUnloaded, Transfer
from core.link.frames import FrameType
from core.node.base.context import NodeContext
from core.node.base.signals import Signal
from core.node.peers.mesh import Mesh, MessageRefused
from core.node.peers.worker_state import PlanChosen, WorkerState
from core.node.ring import messages
from core.node.ring.plan_lifecycle import Action, Broke, ConnectRing, GiveUp, PlanLifecycle, ProveRing, Ready, ShowStage
from core.node.ring.plan_member import OwnStageReported, PlanMember
from core.node.ring.prefill_link import PrefillLink
from core.node.ring.stage_files import Lack, StageFiles
from core.plan.topology import has_ranks
from core.worker import messages as reports

PREPARE_S = 90.0
STILL_S = 120.0  # a worker reports every tensor that it reads
LOOK_S = 5.0
PROVE_S = 60.0  # from one part of the proof to the next; a stuck rank would block the others for ever
READ_BYTES_PER_S = 50e6


class RingReady(Signal, frozen=True):
    """The ring computes."""


class StageProgressed(Signal, frozen=True):
    """A stage loads, links or is ready."""


class RingBroke(Signal, frozen=True):
    """A link of that Mac is being made again; the Mac keeps its layers."""

    device_id: str
    problem: Problem


class PlanLost(Signal, frozen=True):
    """The plan can't run because of that Mac; "" for none in particular."""

    device_id: str
    problem: Problem


class PlanLeader:
    """The plan that this node leads, if any. It is also kept in `worker.led`; `faults` keeps which Mac has other files,
    until the next load.
    """

    def __init__(
        self, node: NodeContext, mesh: Mesh, member: PlanMember, files: StageFiles, worker: WorkerState
    ) -> None:
        self._device_id, self._faults, self._references = node.own_id, node.faults, node.home.references
        self._signals, self._bus, self._journal, self._tasks = node.signals, node.bus, node.journal, node.tasks
        self._mesh, self._member, self._files, self._worker = mesh, member, files, worker
        self._lifecycle: PlanLifecycle | None = None
        self._bringing: asyncio.Task[None] | None = None
        self._started = 0.0
        self._first_gen = 0
        self._directory = Path()
        self._drafter: Path | None = None
        self._verify = False
        self._reported_at: dict[str, float] = {}  # last report of each Mac, monotonic seconds
        self._proof_at = 0.0  # when a proof last went on
        self._paths: dict[str, PathKind] = {}
        self._prefill = PrefillLink(node, mesh, member)
        self._last_gen = 0
        self._signals.on_awaited(OwnStageReported, lambda own: self.handle_message(self._device_id, own.word))
        self._signals.on(MessageRefused, self._handle_refusal)

    @property
    def ready(self) -> bool:
        return self._lifecycle is not None and self._lifecycle.phase == "ready"

    @property
    def plan(self) -> Plan | None:
        return self._lifecycle.plan if self._lifecycle and self._lifecycle.phase != "failed" else None

    @property
    def last_gen(self) -> int:
        return max(self._last_gen, self._prefill.last_gen)

    def path_from(self, device_id: str) -> PathKind:
        return self._paths.get(device_id, "")

    def served(self) -> None:
        if self._lifecycle:
            self._lifecycle.served()

    @property
    def is_loading(self) -> bool:
        return self._lifecycle is not None and self._lifecycle.phase in ("loading", "linking", "proving")

    @property
    def is_without_group(self) -> bool:
        lifecycle = self._lifecycle
        return lifecycle is not None and has_ranks(lifecycle.plan) and lifecycle.failed_in == "linking"

    async def load(
        self,
        plan: Plan,
        directory: Path,
        *,
        verify: bool = False,
        lacks: Sequence[Lack] = (),
        drafter: Path | None = None,
    ) -> None:
        """Hand out the stages of `plan` in place of the one before, after copying `lacks` and comparing with the hub.
        Returns before that is done. `directory` and `drafter` hold the model and the draft model here. `verify`: make
        the logits again that the ring's are compared with. Raises BadModel for a damaged map, NotLoaded if it is
        unloaded meanwhile.
        """
        before, self._lifecycle = self._lifecycle, PlanLifecycle(plan)
        lifecycle = self._lifecycle
        self._note_plan()
        self._faults.other_model.clear()
        self._first_gen, self._started = plan.plan_gen, monotonic()
        self._directory, self._verify, self._drafter = directory, verify, drafter
        self._reported_at.clear()
        await self._stop_bringing()
        if before:
            staying = {stage.device_id for stage in plan.parts}
            await self._release(before.plan, "Another plan takes its place.", staying)
        self._bus.publish(PlanProposed(plan=plan))
        self._signals.emit(PlanChosen())
        if lacks or not await self._files.is_compared(directory):
            self._bringing = self._tasks.spawn_essential("What a plan lacks", self._bring(lifecycle, lacks))
        else:
            await self._hand_out_all(lifecycle)

    async def _bring(self, lifecycle: PlanLifecycle, lacks: Sequence[Lack]) -> None:
        def show(transfer: Transfer) -> None:
            if lifecycle is self._lifecycle:
                done, total = transfer.done, transfer.total
                self._show(lifecycle.show(transfer.mac, "fetching", done_bytes=done, total_bytes=total))

        def compared(done: int, total: int) -> None:
            if lifecycle is self._lifecycle:
                self._show(lifecycle.show(self._device_id, "comparing", done_bytes=done, total_bytes=total))

        failed = await self._files.bring(lifecycle.plan, lacks, show)
        failed = failed or await self._files.compare(lifecycle.plan, self._directory, compared)
        self._bringing = None
        if lifecycle is not self._lifecycle or lifecycle.phase != "loading":
            return
        if failed:
            await self._act(self._lost(failed.device_id, failed.problem))
        else:
            with suppress(NotLoaded):
                await self._hand_out_all(lifecycle)

    async def _stop_bringing(self) -> None:
        if bringing := self._bringing:
            self._bringing = None
            bringing.cancel()
            await asyncio.wait([bringing])

    async def _hand_out_all(self, lifecycle: PlanLifecycle) -> None:
        plan = lifecycle.plan
        for index, stage in enumerate(plan.stages):
            await self._hand_out(plan, index, stage.device_id, self._directory)
            if self._lifecycle is not lifecycle:
                raise NotLoaded(f"{plan.model} was unloaded while it was being loaded.")
            if lifecycle.phase == "failed":
                return
        self._tasks.spawn_essential("The check of stages", self._check_loading(lifecycle))

    async def relink(self) -> None:
        if self._lifecycle:
            await self._act(self._lifecycle.resume())

    async def free(self, reason: str) -> None:
        """Free the memory on every Mac of the plan; what is known of their files stays."""
        if lifecycle := self._lifecycle:
            lifecycle.abandon()
            self._note_plan()
            await self._stop_bringing()
            await self._release(lifecycle.plan, reason)

    def fail(self, problem: Problem) -> None:
        if self._lifecycle:
            self._lifecycle.abandon()
            self._note_plan()
            plan = self._lifecycle.plan
            how = "was not loaded" if self._bus.now.plan_status == "loading" else "no longer runs"
            self._journal.error(f"{plan.model} {how}: {problem.what}")
            self._bus.publish(PlanFailed(plan_gen=plan.plan_gen, problem=problem))

    async def unload(self, reason: str) -> None:
        """Free the memory, and report it."""
        lifecycle, self._lifecycle = self._lifecycle, None
        self._note_plan()
        self._faults.other_model.clear()
        await self._stop_bringing()
        if lifecycle:
            await self._release(lifecycle.plan, reason)
            if self._lifecycle is None:  # else another plan replaced it meanwhile, and this would hide that
                self._bus.publish(PlanUnloaded(plan_gen=lifecycle.plan.plan_gen))

    async def came(self, device_id: str) -> None:
        plan = self.plan
        if plan and all(stage.device_id != device_id for stage in plan.parts):
            await self._mesh.send(
                device_id, messages.Release(plan_gen=plan.plan_gen, reason="The plan continued without it.")
            )
        await self._prefill.came(device_id)

    async def handle_message(self, device_id: str, message: messages.StageWord) -> None:
        """Take a message about a stage of this plan; Macs without a stage are ignored."""
        await self._prefill.handle_message(device_id, message)
        if self._lifecycle is None or all(s.device_id != device_id for s in self._lifecycle.plan.stages):
            return
        self._reported_at[device_id] = monotonic()
        match message:
            case messages.Prepared(plan_gen=gen, port=port) if self._knows(gen):
                await self._act(self._lifecycle_now().prepared(device_id, port))
            case messages.Checked(plan_gen=gen, files=files) if self._knows(gen):
                await self._act(self._lifecycle_now().checked(device_id, files))
            case messages.Reported(plan_gen=gen, report=report) if self._knows(gen):
                await self._act(self._handle_report(device_id, report))
            case messages.StageLost(plan_gen=gen, problem=problem) if self._knows(gen):
                await self._act(self._lost(device_id, problem))

    def _handle_refusal(self, refused: MessageRefused) -> None:
        """A Mac of the plan does not understand an order: nothing else comes of it."""
        if self._lifecycle and refused.frame == FrameType.PLAN:
            actions = self._lost(refused.device_id, refused.problem)
            self._tasks.spawn("A refused order", self._act(actions))

    def proving(self) -> None:
        self._proof_at = monotonic()

    async def proved(self, report: reports.Proved | reports.Unproved) -> None:
        if self._lifecycle is None:
            return
        match report:
            case reports.Proved(plan_gen=gen):
                await self._act(self._lifecycle.proved(gen, proof_text(report)))
            case reports.Unproved(plan_gen=gen, problem=problem):
                what = f"{problem.what} {self._lifecycle.computed_by}"
                await self._act(self._lifecycle.disproved(gen, msgspec.structs.replace(problem, what=what)))

    async def lost(self, device_id: str, problem: Problem) -> None:
        """A Mac or its worker is gone. The ring continues without its prefill Mac."""
        await self._prefill.lost(device_id, problem)
        if self._lifecycle:
            await self._act(self._lifecycle.lost(device_id, problem))

    async def distrusted(self, device_id: str, problem: Problem) -> None:
        await self._prefill.lost(device_id, problem)
        if self._lifecycle:
            await self._act(self._lifecycle.distrusted(device_id, problem))

    def prefill_reported(self, report: reports.PrefillLinked | reports.PrefillBroken) -> None:
        self._prefill.reported(report)

    def _note_plan(self) -> None:
        """Call after every step of the lifecycle: trust is judged by `worker.led`."""
        self._worker.led = self.plan

    def _lifecycle_now(self) -> PlanLifecycle:
        assert self._lifecycle is not None
        return self._lifecycle

    def _knows(self, plan_gen: int) -> bool:
        return self._lifecycle is not None and self._first_gen <= plan_gen <= self._lifecycle.plan.plan_gen

    def _handle_report(self, device_id: str, report: messages.StageReport) -> list[Action]:
        lifecycle = self._lifecycle_now()
        match report:
            case reports.Loading(plan_gen=gen) | reports.Loaded(plan_gen=gen) | reports.Failed(plan_gen=gen) if (
                not self._knows(gen)
            ):
                return []  # late reports of a replaced worker or an older plan
            case reports.Loading(done_bytes=done, total_bytes=total):
                return lifecycle.loading(device_id, done, total)
            case reports.Loaded():
                return lifecycle.loaded(device_id, report)
            case reports.Failed(problem=problem):
                return self._lost(device_id, problem)
            case reports.Linked(plan_gen=gen, way=way):
                self._paths[device_id] = way.kind
                return lifecycle.linked(device_id, gen)
            case reports.LinkBroken(plan_gen=gen, problem=problem):
                self._journal.warn(f"A link of {self._name(device_id)} broke: {problem.what}")
                return lifecycle.broken(device_id, gen, problem)

    def _lost(self, device_id: str, problem: Problem) -> list[Action]:
        what = f"{self._name(device_id)}: {problem.what}"
        return self._lifecycle_now().lost(device_id, Problem(kind=problem.kind, what=what, fix=problem.fix))

    async def _hand_out(self, plan: Plan, index: int, device_id: str, directory: Path) -> None:
        try:
            if device_id == self._device_id:
                load = reports.Load(
                    plan=plan,
                    index=index,
                    directory=str(directory),
                    drafter=str(self._drafter or ""),
                    references=str(self._references),
                    verify=self._verify,
                )
                port = await self._member.prepare_own(load)
                if self._knows(plan.plan_gen):
                    await self._act(self._lifecycle_now().prepared(device_id, port))
            elif not await self._mesh.send(device_id, messages.PrepareStage.of(plan, index)):
                raise LinkLost(f"{plan.stages[index].peer} is not linked.")
        except MaclusterError as error:
            if self._knows(plan.plan_gen):
                await self._act(self._lifecycle_now().lost(device_id, error.problem))

    async def _check_loading(self, lifecycle: PlanLifecycle) -> None:
        begun = monotonic()
        while lifecycle is self._lifecycle and lifecycle.phase == "loading":
            await asyncio.sleep(LOOK_S)
            for device_id in lifecycle.unloaded():
                has_begun = lifecycle.is_prepared(device_id)
                limit_s = STILL_S if has_begun else PREPARE_S
                if monotonic() - self._reported_at.get(device_id, begun) > limit_s:
                    how = "has read nothing more for" if has_begun else "has not begun to load after"
                    problem = LinkTimeout(f"{self._name(device_id)} {how} {limit_s:.0f} s.").problem
                    await self.lost(device_id, problem)
                    break

    async def _check_proved(self, lifecycle: PlanLifecycle, plan: Plan) -> None:
        limit_s = PROVE_S + sum(stage.weight_bytes for stage in plan.stages) / READ_BYTES_PER_S
        self._proof_at = monotonic()
        while lifecycle is self._lifecycle and lifecycle.plan is plan and lifecycle.phase == "proving":
            if monotonic() > self._proof_at + limit_s:
                problem = LinkTimeout(f"The proof made no progress for {limit_s:.0f} s.").problem
                await self.lost(plan.head.device_id, problem)
                break
            await asyncio.sleep(LOOK_S)

    async def _act(self, actions: list[Action]) -> None:
        self._note_plan()
        for action in actions:
            match action:
                case ShowStage():
                    self._show(action)
                case ConnectRing(plan=plan, ports=ports):
                    self._last_gen = plan.plan_gen
                    await self._connect(plan, ports)
                case ProveRing(plan=plan):
                    self._member.prove_own(plan.plan_gen)
                    check = self._check_proved(self._lifecycle_now(), plan)
                    self._tasks.spawn_essential("The check of the proof", check)
                case Ready(plan=plan, proof=proof):
                    seconds = monotonic() - self._started
                    macs = "1 Mac" if len(plan.stages) == 1 else f"{len(plan.stages)} Macs"
                    self._journal.info(f"{plan.model} is ready on {macs}. {proof}")
                    self._bus.publish(PlanLoaded(plan_gen=plan.plan_gen, seconds=seconds, proof=proof))
                    self._signals.emit(RingReady())
                    await self._prefill.begin(plan, self._directory)
                case Broke(device_id=device_id, problem=problem):
                    self._signals.emit(RingBroke(device_id, problem))
                case GiveUp(device_id=device_id, problem=problem):
                    if other := self._lifecycle_now().mismatch:
                        self._faults.other_model[other.device_id] = other.problem.what
                    self._signals.emit(PlanLost(device_id, problem))

    def _show(self, shown: ShowStage) -> None:
        self._bus.publish(shown.state)
        self._signals.emit(StageProgressed())

    async def _connect(self, plan: Plan, ports: tuple[int, ...]) -> None:
        for index in range(len(plan.stages)):
            device_id, port = plan.stages[index].device_id, ports[(index + 1) % len(ports)]
            order = messages.LinkUp.of(plan, port)
            if device_id == self._device_id:
                self._member.link_own(plan, order)
            else:
                await self._mesh.send(device_id, order)

    async def _release(self, plan: Plan, reason: str, staying: Collection[str] = ()) -> None:
        """Release the plan everywhere; Macs that stay do so when they get their next stage."""
        await self._prefill.end(reason, stays=plan.prefill is not None and plan.prefill.stage.device_id in staying)
        for stage in plan.stages:
            if stage.device_id != self._device_id and stage.device_id not in staying:
                await self._mesh.send(stage.device_id, messages.Release(plan_gen=plan.plan_gen, reason=reason))
        if self._device_id not in staying:
            await self._member.release_own(plan.plan_gen)

    def _name(self, device_id: str) -> str:
        return next((s.peer for s in self._lifecycle_now().plan.stages if s.device_id == device_id), device_id[:8])


def proof_text(proved: reports.Proved) -> str:
    if proved.difference is None:
        return f"Proved with {proved.tokens} tokens in {proved.seconds:.1f} s, but not against mlx_lm: {proved.why}."
    largest = f"largest difference {proved.difference:.2g}"
    return f"Proved against mlx_lm with {proved.tokens} tokens: the same logits as on one Mac ({largest})."
