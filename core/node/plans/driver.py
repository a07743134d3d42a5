"""Loads models for the user, and carries out the orders of the plan machine."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection, Sequence
from time import monotonic, time
from typing import Final

import msgspec

from core import events
from core.errors import Busy, LinkLost, MaclusterError, NotLoaded, Problem, UsageError
from core.events import PathKind, Plan, Recovery, RecoveryChoice, StageState, StageStatus, Transfer
from core.link.frames import FrameType
from core.node.answers.answers import Answers
from core.node.answers.saved_sessions import SavedSessions
from core.node.base.context import NodeContext
from core.node.peers.mesh import Mesh, MessageRefused
from core.node.peers.peer_table import PeerTable
from core.node.peers.stage_state import HeldStage, PlanId
from core.node.peers.worker_state import PlanChosen, WorkerState
from core.node.plans import orders, texts
from core.node.plans.plan_machine import PlanMachine
from core.node.ring import messages
from core.node.ring.plan_member import PlanMember
from core.node.ring.planning import Planned, Planning
from core.node.ring.prefill_link import PrefillLink
from core.node.ring.stage_files import StageFiles
from core.plan.topology import has_ranks
from core.requests.plans import LoadRequest
from core.worker.messages import Load, Prefilled, Proved, Proving, Token, Unproved

TICK_S = 0.25
LEAST_ANSWERS: Final = 3  # a single one may have been unlucky
# a worker that waits too long for its group ends itself
NO_GROUP: Final = frozenset({"GroupFailed", "WorkerDied"})


class PlanDriver:
    """The plan that the user loaded, through all losses of Macs. Whether it runs is also kept in `worker`; `faults`
    keeps which Mac has other files, until the next load.
    """

    def __init__(
        self,
        node: NodeContext,
        mesh: Mesh,
        peers: PeerTable,
        worker: WorkerState,
        member: PlanMember,
        planning: Planning,
        files: StageFiles,
        prefill: PrefillLink,
        answers: Answers,
        sessions: SavedSessions,
    ) -> None:
        self._device_id, self._assessment, self._faults = node.own_id, node.assessment, node.faults
        self._bus, self._journal, self._tasks, self._signals = node.bus, node.journal, node.tasks, node.signals
        self._references = node.home.references
        self._mesh, self._peers, self._worker, self._member = mesh, peers, worker, member
        self._planning, self._files, self._prefill = planning, files, prefill
        self._answers, self._sessions = answers, sessions
        self._machine: PlanMachine | None = None
        self.asked = self._request = LoadRequest(model="")
        self._no_group = ""  # why the Macs could not form a tensor group
        self._planned: Planned | None = None  # what the machine's plan needs
        self._found: Planned | None = None
        self._bringing: asyncio.Task[None] | None = None
        self._begun_at = 0.0
        self._answers_of_plan = 0
        self._linked: set[str] = set()
        self._turn, self._sending, self._has_work = asyncio.Lock(), asyncio.Lock(), asyncio.Event()
        self._is_beginning = False
        node.bus.on_work(self._has_work.set)

    # ---- what the user asks for

    async def load(self, request: LoadRequest) -> None:
        """Load a model over the connected Macs, in place of the one that runs or is being recovered. A failure is also
        logged. Raises NotPaired, RosterFork, PlanError, ModelError, Busy.
        """
        try:
            await self._load(request)
        except MaclusterError as error:
            self._journal.error(f"{request.model} was not loaded: {error}")
            raise

    async def _load(self, request: LoadRequest) -> None:
        planned = await self._planning.plan(request)
        before = self._machine
        if self._is_beginning or (before and before.is_loading and not before.recovers):
            raise Busy(f"{before.plan.model if before and before.led else 'A model'} is being loaded.")
        self._is_beginning = True
        try:
            if before and before.led and before.plan.fingerprint == planned.plan.fingerprint:
                # what stays with a Mac stays in memory
                self._give_up("It is being loaded again.", keeps_tokenizer=True)
            else:
                await self._drop("Another model is loaded.")
        finally:
            self._is_beginning = False
        # a recovery keeps the context, which running answers need
        self.asked, self._request = request, msgspec.structs.replace(request, context=planned.plan.context)
        self._no_group, self._answers_of_plan = "", 0
        if planned.words:
            self._journal.info(f"Copying {planned.words}, then loading {planned.plan.model}.")
        machine = await self._lead(planned)
        if machine is not self._machine:
            raise NotLoaded(f"{planned.plan.model} was unloaded while it was being loaded.")
        try:
            await self._answers.use(planned.directory)
        except MaclusterError:
            await self._drop("Its tokenizer cannot be read.")
            raise

    async def rebalance(self) -> None:
        """After some answers: move layers, if they are divided by speed and the Macs' speeds differ from the plan's.
        Layers that stay with a Mac stay in memory; new requests wait.
        """
        plan, request = self._worker.led, self._request
        self._answers_of_plan += 1
        if plan is None or request.balance == "memory" or self._answers_of_plan < LEAST_ANSWERS or self._is_in_use:
            return
        try:
            planned = await self._planning.faster(plan, request)
        except MaclusterError as error:
            self._journal.warn(f"Couldn't check whether another split would be faster: {error.what}")
            return
        if planned is None or request is not self._request or plan is not self._worker.led or self._is_in_use:
            return
        self._journal.info(f"Layers of {plan.model} move to other Macs. {planned.plan.notes[0]}")
        self._answers_of_plan = 0
        await self._lead(planned._replace(verify=False), recovers=True)

    @property
    def _is_in_use(self) -> bool:
        return not self._worker.is_ready or bool(
            self._answers.under_way or self._bus.now.recovery or self._is_beginning
        )

    async def unload(self) -> None:
        self.asked = self._request = LoadRequest(model="")
        await self._drop("Model unloaded.")

    def choose(self, choice: RecoveryChoice) -> None:
        recovery = self._bus.now.recovery
        if self._machine is None or recovery is None or choice not in recovery.choices:
            raise UsageError(f'"{choice}" is not possible now.', "`macluster status` shows what is possible.")
        self._machine.chose(choice, self._answers.under_way, monotonic())
        self._step()

    async def _drop(self, reason: str) -> None:
        self._give_up(reason)
        machine, self._machine = self._machine, None
        self._note()
        self._faults.other_model.clear()
        if machine:
            await self._release(machine.plan, reason)
            if self._machine is None:  # else another plan replaced it meanwhile, and this would hide that
                self._bus.publish(events.PlanUnloaded(plan_gen=machine.plan.plan_gen))

    def _give_up(self, reason: str, *, keeps_tokenizer: bool = False) -> None:
        if self._bus.now.recovery:
            self._bus.publish(Recovery(state="running", text=""))
        if loaded := self._bus.now.plan:
            problem = NotLoaded(f"{loaded.model} was unloaded: {reason}").problem
            self._end_answers(problem, keeps_tokenizer=keeps_tokenizer)

    def _end_answers(self, problem: Problem, *, keeps_tokenizer: bool = False) -> None:
        self._answers.stop_all(problem, keeps_tokenizer=keeps_tokenizer)
        self._sessions.stop(problem)

    # ---- what is so

    async def watch(self) -> None:
        """Let time pass for the plan. Sleeps while nothing runs, so that an idle Mac stays asleep."""
        while True:
            await asyncio.sleep(TICK_S)
            self._step()
            if not self._bus.now.is_working:
                self._has_work.clear()
                await self._has_work.wait()

    def changed(self, device_id: str) -> None:
        peer = next((p for p in self._bus.now.peers if p.device_id == device_id), None)
        is_linked = peer is not None and peer.state == "connected" and peer.budget_bytes > 0
        is_new = is_linked and device_id not in self._linked
        (self._linked.add if is_linked else self._linked.discard)(device_id)
        if is_new:
            self._tasks.spawn("Greeting a Mac that came", self._came(device_id))
        if self._machine and peer and peer.state == "suspect":
            self._machine.suspected(device_id)
        elif self._machine and is_linked:
            self._machine.linked(device_id, monotonic())
        self._step()

    async def _came(self, device_id: str) -> None:
        plan = self._worker.led
        if plan and all(stage.device_id != device_id for stage in plan.parts):
            reason = "The plan continued without it."
            await self._mesh.send(device_id, messages.Release(plan_gen=plan.plan_gen, reason=reason))
        await self._prefill.came(device_id)

    def gone(self, device_id: str) -> None:
        self._linked.discard(device_id)
        if self._machine:
            self._machine.gone(device_id)

    async def lost(self, device_id: str, problem: Problem) -> None:
        """A Mac is gone. The ring continues without its prefill Mac."""
        await self._prefill.lost(device_id, problem)
        if self._machine:
            self._machine.lost(device_id, problem)
            self._step()

    async def distrusted(self, device_id: str, problem: Problem) -> None:
        await self._prefill.lost(device_id, problem)
        if self._machine:
            self._machine.distrusted(device_id, problem)
            self._step()

    def refused(self, refused: MessageRefused) -> None:
        """A Mac of the plan does not understand an order: nothing else comes of it."""
        if self._machine and refused.frame == FrameType.PLAN:
            self._machine.failed(refused.device_id, refused.problem)
            self._step()

    def heard(self, device_id: str, stage: HeldStage) -> None:
        self._prefill.heard(device_id, stage)
        if self._machine and self._machine.heard(device_id, stage, monotonic()):
            self._step()

    async def take_files(self, device_id: str, reply: messages.FilesReply) -> None:
        self._prefill.take_files(device_id, reply)
        machine, planned = self._machine, self._planned
        if machine is None or planned is None or reply.plan != machine.id:
            return
        try:
            own = await self._member.files_in(planned.directory)
        except MaclusterError as error:
            machine.lost(self._device_id, error.problem)
        else:
            if reply.plan == machine.id:
                machine.differs(device_id, own, reply.files)
        self._step()

    def handle_report(self, report: Token | Prefilled | Proving | Proved | Unproved) -> None:
        machine = self._machine
        if machine is None:
            return
        match report:
            case Token(request_id=request):
                machine.wrote(request, monotonic())
            case Prefilled(request_id=request, done=done):
                machine.read(request, done, monotonic())
            case Proving():
                machine.proving(monotonic())
            case Proved(plan_gen=gen):
                machine.proved(gen, texts.proof(report))
            case Unproved(plan_gen=gen, problem=problem):
                machine.disproved(gen, problem)
        if machine.phase != "running":
            self._step()

    def path_from(self, device_id: str) -> PathKind:
        return self._machine.path_from(device_id) if self._machine else ""

    # ---- where the plan stands, and the orders

    def _step(self) -> None:
        if machine := self._machine:
            given = machine.step(monotonic(), self._answers.under_way, self._peers.steps(machine.plan))
            self._note()
            if given:
                self._carry_out(given, machine)

    def _note(self) -> None:
        """Call after every step: trust is judged by `worker.led`, and answers are sent if `worker.is_ready`."""
        machine, worker = self._machine, self._worker
        worker.led = machine.led if machine else None
        worker.is_ready = machine is not None and machine.is_ready
        worker.is_loading = machine is not None and machine.is_loading
        worker.last_gen = max(worker.last_gen, self._prefill.last_gen, machine.plan.plan_gen if machine else 0)

    def _carry_out(self, given: Sequence[orders.Order], machine: PlanMachine) -> None:
        by_layers, to_macs = False, list[orders.StageOrder]()
        for order in given:
            match order:
                case orders.ShowRecovery(recovery=recovery):
                    self._show(recovery)
                case orders.ShowStage(state=stage):
                    self._show_stage(stage)
                case orders.RunProof(plan_gen=gen):
                    self._member.prove_own(gen)
                case orders.Ready(proof=proof):
                    self._ready(machine.plan, proof)
                case orders.Lost():
                    by_layers = self._note_loss(order, machine)
                case orders.CancelAnswers():
                    for request_id in list(self._answers.under_way):
                        self._answers.cancel(request_id)
                case orders.Seek():
                    self._tasks.spawn_essential("Seeking another plan", self._seek(order, machine))
                case orders.Rebuild():
                    self._rebuild(order, machine)
                case orders.Free():
                    self._answers.suspend()
                    self._tasks.spawn_essential("Freeing a plan", self._free(machine.plan))
                case orders.End(problem=problem) if by_layers and not machine.recovers:
                    again = self._load_by_layers(self._request, machine, problem)
                    self._tasks.spawn_essential("Loading again", again)
                case orders.End(problem=problem, shown=shown):
                    self._end(machine, problem, shown)
                case _:
                    to_macs.append(order)
        if to_macs:
            self._tasks.spawn_essential("Orders of a plan", self._send(to_macs, machine))

    async def _send(self, given: Sequence[orders.StageOrder], machine: PlanMachine) -> None:
        async with self._sending:
            for order in given:
                if machine is not self._machine or order.plan is not machine.plan:
                    return
                match order:
                    case orders.Prepare(plan=plan, index=index):
                        await self._prepare(plan, index, machine)
                    case orders.Link(plan=plan, index=index, port=port):
                        await self._link(plan, index, port, machine)
                    case orders.AskFiles(device_id=device_id):
                        await self._mesh.send(device_id, messages.FilesRequest(plan=machine.id))

    async def _prepare(self, plan: Plan, index: int, machine: PlanMachine) -> None:
        stage, number = plan.stages[index], machine.id.number
        if stage.device_id == self._device_id:
            self._tasks.spawn_essential("Preparing this Mac's stage", self._prepare_own(plan, index, machine))
        elif not await self._mesh.send(stage.device_id, messages.PrepareStage.of(plan, index, number)):
            machine.lost(stage.device_id, LinkLost(f"{stage.peer} is not linked.").problem)
            self._step()

    async def _prepare_own(self, plan: Plan, index: int, machine: PlanMachine) -> None:
        planned, plan_id = self._planned, machine.id
        assert planned
        load = Load(
            plan=plan,
            index=index,
            directory=str(planned.directory),
            drafter=str(planned.drafter or ""),
            references=str(self._references),
            verify=planned.verify,
        )
        try:
            await self._member.prepare_own(load, plan_id.number)
        except MaclusterError as error:
            if machine.id == plan_id:
                machine.lost(self._device_id, error.problem)
                self._step()

    async def _link(self, plan: Plan, index: int, port: int, machine: PlanMachine) -> None:
        try:
            self._assessment.check(plan)
        except MaclusterError as error:
            machine.lost("", error.problem)
            self._step()
            return
        order, device_id = messages.LinkUp.of(plan, port, machine.id.number), plan.stages[index].device_id
        if device_id == self._device_id:
            await self._member.link_own(plan, order)
        else:
            await self._mesh.send(device_id, order)

    def _ready(self, plan: Plan, proof: str) -> None:
        seconds = monotonic() - self._begun_at
        macs = "1 Mac" if len(plan.stages) == 1 else f"{len(plan.stages)} Macs"
        self._journal.info(f"{plan.model} is ready on {macs}. {proof}")
        self._bus.publish(events.PlanLoaded(plan_gen=plan.plan_gen, seconds=seconds, proof=proof))
        self._answers.send()
        if self._planned:
            self._tasks.spawn("Requesting a prefill Mac", self._prefill.begin(plan, self._planned.directory))

    def _note_loss(self, lost: orders.Lost, machine: PlanMachine) -> bool:
        """Note why the ring stopped; returns whether the next plan shall split by layers instead."""
        problem = lost.problem
        if problem.kind == "ModelMismatch" and lost.device_id:
            self._faults.other_model[lost.device_id] = problem.what
        is_without_group = has_ranks(machine.plan) and lost.was_linking and problem.kind in NO_GROUP
        by_layers = is_without_group and not self._no_group and self._request.parallelism == "auto"
        if by_layers:
            self._no_group = problem.what.rstrip(".")
            self._journal.warn(f"Split by layers instead, since the Macs couldn't form a tensor group: {problem.what}")
        if problem.kind == "WorkerDied":
            self._answers.worker_died()
        return by_layers

    def _end(self, machine: PlanMachine, problem: Problem, shown: Problem) -> None:
        plan = machine.plan
        how = "was not loaded" if self._bus.now.plan_status == "loading" else "no longer runs"
        self._journal.error(f"{plan.model} {how}: {problem.what}")
        self._bus.publish(events.PlanFailed(plan_gen=plan.plan_gen, problem=problem))
        self._end_answers(shown)
        self._tasks.spawn_essential("Freeing a plan", self._release(plan, problem.what))

    async def _free(self, plan: Plan) -> None:
        async with self._turn:
            await self._release(plan, "It waits for a Mac that was lost.")

    async def _seek(self, order: orders.Seek, machine: PlanMachine) -> None:
        async with self._turn:
            if machine is not self._machine:  # the user loaded another model meanwhile
                return
            try:
                found = await self._planning.plan_on(self._request, order.without, self._no_group)
            except MaclusterError as error:
                machine.unfit(order.number, error.problem)
            else:
                self._found = found._replace(verify=False)
                machine.found(order.number, found.plan, self._new_id(), found.words)
            if machine is self._machine:
                self._step()

    def _rebuild(self, order: orders.Rebuild, machine: PlanMachine) -> None:
        assert self._found
        self._answers.suspend()
        self._sessions.stop(NotLoaded("A Mac was lost meanwhile.", "Try again once the model runs.").problem)
        self._tasks.spawn_essential("Loading again", self._take_over(self._found, machine, order.before))

    async def _load_by_layers(self, request: LoadRequest, failed: PlanMachine, problem: Problem) -> None:
        try:
            planned = await self._planning.plan_on(request, (), self._no_group)
        except MaclusterError:  # the original problem says more
            if failed is self._machine:
                self._end(failed, problem, problem)
            return
        if failed is self._machine and not self._is_beginning:
            await self._lead(planned._replace(verify=False))

    # ---- from one plan to the next

    def _new_id(self) -> PlanId:
        return PlanId(self._device_id, secrets.randbits(32))

    async def _lead(self, planned: Planned, *, recovers: bool = False) -> PlanMachine:
        """Load a plan instead of the one before; returns before that is done."""
        before = self._machine
        self._machine = machine = PlanMachine(planned.plan, self._new_id(), monotonic(), recovers=recovers)
        await self._take_over(planned, machine, before.plan if before else None)
        return machine

    async def _take_over(self, planned: Planned, machine: PlanMachine, before: Plan | None) -> None:
        """Release the plan before where its Macs don't stay, and bring every Mac its files. Raises BadModel for a
        damaged map.
        """
        self._note()
        self._faults.other_model.clear()
        self._planned, self._begun_at = planned, monotonic()
        await self._stop_bringing()
        if before:
            staying = {stage.device_id for stage in planned.plan.parts}
            await self._release(before, "Another plan takes its place.", staying)
        if not self._is_led(planned, machine):
            return
        self._bus.publish(events.PlanProposed(plan=planned.plan))
        self._signals.emit(PlanChosen())
        try:
            is_compared = await self._files.is_compared(planned.directory)
        except MaclusterError as error:
            machine.lost(self._device_id, error.problem)
            self._step()
            raise
        if planned.lacks or not is_compared:
            self._bringing = self._tasks.spawn_essential("What a plan lacks", self._bring(planned, machine))
        else:
            self._brought(planned, machine)

    def _is_led(self, planned: Planned, machine: PlanMachine) -> bool:
        return machine is self._machine and planned is self._planned and machine.led is not None

    def _brought(self, planned: Planned, machine: PlanMachine) -> None:
        if self._is_led(planned, machine):
            machine.brought(monotonic())
            self._step()

    async def _bring(self, planned: Planned, machine: PlanMachine) -> None:
        def show(device_id: str, status: StageStatus, done: int, total: int) -> None:
            if self._is_led(planned, machine):
                machine.progressed(monotonic())
                state = StageState(device_id=device_id, status=status, done_bytes=done, total_bytes=total)
                self._bus.publish(state)

        def show_transfer(transfer: Transfer) -> None:
            show(transfer.mac, "fetching", transfer.done, transfer.total)

        def compared(done: int, total: int) -> None:
            show(self._device_id, "comparing", done, total)

        failed = await self._files.bring(planned.plan, planned.lacks, show_transfer)
        failed = failed or await self._files.compare(planned.plan, planned.directory, compared)
        self._bringing = None
        if failed and self._is_led(planned, machine):
            machine.failed(failed.device_id, failed.problem)
            self._step()
        elif not failed:
            self._brought(planned, machine)

    async def _stop_bringing(self) -> None:
        if bringing := self._bringing:
            self._bringing = None
            bringing.cancel()
            await asyncio.wait([bringing])

    async def _release(self, plan: Plan, reason: str, staying: Collection[str] = ()) -> None:
        """Release the plan everywhere; Macs that stay do so when they get their next stage."""
        await self._stop_bringing()
        await self._prefill.end(reason, stays=plan.prefill is not None and plan.prefill.stage.device_id in staying)
        for stage in plan.stages:
            if stage.device_id != self._device_id and stage.device_id not in staying:
                await self._mesh.send(stage.device_id, messages.Release(plan_gen=plan.plan_gen, reason=reason))
        if self._device_id not in staying:
            await self._member.release_own(plan.plan_gen)

    # ---- what is shown

    def _show(self, recovery: Recovery) -> None:
        now, fresh = self._bus.now, recovery.text
        for said in (now.recovery.text if now.recovery else "", now.logs[-1].text if now.logs else ""):
            fresh = fresh.removeprefix(said).strip()  # log only the new end of a growing sentence
        if fresh:
            self._journal.warn(fresh)
        self._bus.publish(msgspec.structs.replace(recovery, since=time() - (monotonic() - recovery.since)))

    def _show_stage(self, stage: StageState) -> None:
        if stage.status == "broken":
            self._journal.warn(f"A link of {self._bus.now.name_of(stage.device_id)} broke: {stage.detail}")
        self._bus.publish(stage)
