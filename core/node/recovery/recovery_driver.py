"""Loads models for the user, and carries out the recoveries that `RecoveryStates` decides."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic, time
from typing import Final

import msgspec

from core.errors import Busy, MaclusterError, NotLoaded, Problem, UsageError
from core.events import Recovery, RecoveryChoice
from core.node.answers.answers import Answers
from core.node.answers.saved_sessions import SavedSessions
from core.node.base.context import NodeContext
from core.node.peers.peer_table import PeerTable
from core.node.recovery import recovery_actions
from core.node.recovery.recovery_states import RecoveryStates
from core.node.ring.plan_leader import PlanLeader, PlanLost, RingBroke, RingReady, StageProgressed
from core.node.ring.planning import Planned, Planning
from core.requests.plans import LoadRequest
from core.worker.messages import AnswerDone, Prefilled, Token

TICK_S = 0.25
LEAST_ANSWERS: Final = 3  # a single one may have been unlucky
# a worker that waits too long for its group ends itself
NO_GROUP: Final = frozenset({"GroupFailed", "WorkerDied"})


class RecoveryDriver:
    """The plan that the user loaded, through all losses of Macs."""

    def __init__(
        self,
        node: NodeContext,
        planning: Planning,
        peers: PeerTable,
        leader: PlanLeader,
        answers: Answers,
        sessions: SavedSessions,
    ) -> None:
        self._assessment, self._bus, self._journal, self._tasks = node.assessment, node.bus, node.journal, node.tasks
        self._planning, self._peers = planning, peers
        self._leader, self._answers, self._sessions = leader, answers, sessions
        self._machine: RecoveryStates | None = None  # from the moment when the plan was ready
        self.asked = self._request = LoadRequest(model="")
        self._no_group = ""  # why the Macs could not form a tensor group
        self._found: Planned | None = None
        self._answers_of_plan = 0
        self._linked: set[str] = set()
        self._turn, self._has_work = asyncio.Lock(), asyncio.Event()
        self._is_beginning = False
        signals = node.signals
        signals.on(RingReady, self._ready)
        signals.on(StageProgressed, self._progressed)
        signals.on(RingBroke, self._broke)
        signals.on(PlanLost, self._lost)
        node.bus.on_work(self._has_work.set)

    async def load(self, request: LoadRequest) -> None:
        """Load a model over the connected Macs, in place of the one that runs or is being recovered. A failure is also
        logged. Raises NotPaired, RosterFork, PlanError, ModelError, Busy.
        """
        try:
            await self._begin(request)
        except MaclusterError as error:
            self._journal.error(f"{request.model} was not loaded: {error}")
            raise

    async def _begin(self, request: LoadRequest) -> None:
        planned = await self._planning.plan(request)
        if self._is_beginning or (self._leader.is_loading and self._machine is None):
            raise Busy(f"{self._leader.plan.model if self._leader.plan else 'A model'} is being loaded.")
        self._is_beginning = True
        try:
            before = self._leader.plan
            if before and before.fingerprint == planned.plan.fingerprint:
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
        await self._lead(planned)
        try:
            await self._answers.use(planned.directory)
        except MaclusterError:
            await self._drop("Its tokenizer cannot be read.")
            raise

    async def rebalance(self) -> None:
        """After some answers: move layers, if they are divided by speed and the Macs' speeds differ from the plan's.
        Layers that stay with a Mac stay in memory; new requests wait.
        """
        plan, request = self._leader.plan, self._request
        self._answers_of_plan += 1
        if plan is None or request.balance == "memory" or self._answers_of_plan < LEAST_ANSWERS or self._is_in_use:
            return
        try:
            planned = await self._planning.faster(plan, request)
        except MaclusterError as error:
            self._journal.warn(f"Couldn't check whether another split would be faster: {error.what}")
            return
        if planned is None or request is not self._request or plan is not self._leader.plan or self._is_in_use:
            return
        self._journal.info(f"Layers of {plan.model} move to other Macs. {planned.plan.notes[0]}")
        self._machine, self._answers_of_plan = RecoveryStates(planned.plan), 0
        await self._load_again(planned)

    @property
    def _is_in_use(self) -> bool:
        return not self._leader.ready or bool(self._answers.under_way or self._bus.now.recovery or self._is_beginning)

    async def unload(self) -> None:
        self.asked = self._request = LoadRequest(model="")
        await self._drop("Model unloaded.")

    def choose(self, choice: RecoveryChoice) -> None:
        recovery = self._bus.now.recovery
        if self._machine is None or recovery is None or choice not in recovery.choices:
            raise UsageError(f'"{choice}" is not possible now.', "`macluster status` shows what is possible.")
        self._act(self._machine.chose(choice, self._answers.under_way, monotonic()))

    async def watch(self) -> None:
        """Let time pass for the recovery. Sleeps while nothing runs, so that an idle Mac stays asleep."""
        while True:
            await asyncio.sleep(TICK_S)
            if self._machine:
                steps = self._peers.steps(self._machine.plan)
                self._act(self._machine.tick(self._answers.under_way, monotonic(), steps))
            if not self._bus.now.is_working:
                self._has_work.clear()
                await self._has_work.wait()

    def changed(self, device_id: str) -> None:
        peer = next((p for p in self._bus.now.peers if p.device_id == device_id), None)
        is_linked = peer is not None and peer.state == "connected" and peer.budget_bytes > 0
        is_new = is_linked and device_id not in self._linked
        (self._linked.add if is_linked else self._linked.discard)(device_id)
        if is_new:
            self._tasks.spawn("Greeting a Mac that came", self._leader.came(device_id))
        if self._machine and peer and peer.state == "suspect":
            self._act(self._machine.suspected(device_id, monotonic()))
        elif self._machine and is_linked:
            self._act(self._machine.linked(device_id, monotonic()))

    def gone(self, device_id: str) -> None:
        self._linked.discard(device_id)
        if self._machine:
            self._machine.gone(device_id)

    def handle_report(self, report: Token | Prefilled | AnswerDone) -> None:
        if self._machine is None:
            return
        match report:
            case Token(request_id=request):
                self._act(self._machine.wrote(request, monotonic()))
            case Prefilled(request_id=request, done=done):
                self._act(self._machine.read(request, done, monotonic()))

    def _ready(self, _: RingReady) -> None:
        if self._machine is None and self._leader.plan:
            self._machine = RecoveryStates(self._leader.plan)
        elif self._machine:
            self._act(self._machine.ready(self._answers.under_way, monotonic()))
        self._answers.send()

    def _progressed(self, _: StageProgressed) -> None:
        if self._machine:
            self._machine.progressed(monotonic())

    def _broke(self, broke: RingBroke) -> None:
        if self._machine:
            self._act(self._machine.broke(broke.device_id, broke.problem, monotonic()))

    def _lost(self, lost: PlanLost) -> None:
        problem = lost.problem
        is_first = not self._no_group and self._leader.is_without_group and problem.kind in NO_GROUP
        if by_layers := is_first and self._request.parallelism == "auto":
            self._no_group = problem.what.rstrip(".")
            self._journal.warn(f"Split by layers instead, since the Macs couldn't form a tensor group: {problem.what}")
        if problem.kind == "WorkerDied":
            self._answers.worker_died()
        if self._machine:
            self._act(self._machine.lost(lost.device_id, problem, self._answers.under_way, monotonic()))
        elif by_layers:
            self._tasks.spawn_essential("Loading again", self._load_by_layers(self._request, problem))
        else:
            self._end(problem, problem)

    async def _load_by_layers(self, request: LoadRequest, problem: Problem) -> None:
        try:
            planned = await self._planning.plan_on(request, (), self._no_group)
        except MaclusterError:  # the original problem says more
            self._end(problem, problem)
            return
        if request is self._request and not self._is_beginning and not self._leader.is_loading:
            await self._load_again(planned)

    async def _drop(self, reason: str) -> None:
        self._give_up(reason)
        await self._leader.unload(reason)

    def _give_up(self, reason: str, *, keeps_tokenizer: bool = False) -> None:
        self._machine = None
        if self._bus.now.recovery:
            self._bus.publish(Recovery(state="running", text=""))
        if loaded := self._bus.now.plan:
            problem = NotLoaded(f"{loaded.model} was unloaded: {reason}").problem
            self._end_answers(problem, keeps_tokenizer=keeps_tokenizer)

    def _end_answers(self, problem: Problem, *, keeps_tokenizer: bool = False) -> None:
        self._answers.stop_all(problem, keeps_tokenizer=keeps_tokenizer)
        self._sessions.stop(problem)

    def _act(self, actions: Sequence[recovery_actions.Action]) -> None:
        lasting: list[recovery_actions.Lasting] = []
        for action in actions:
            match action:
                case recovery_actions.ShowRecovery(recovery=recovery):
                    self._show(recovery)
                case recovery_actions.CancelAnswers():
                    for request_id in list(self._answers.under_way):
                        self._answers.cancel(request_id)
                case recovery_actions.End(problem=problem, shown=shown):
                    self._end(problem, shown)
                case _:
                    lasting.append(action)
        if self._machine and lasting:
            self._tasks.spawn_essential("Recovery", self._carry_out(lasting, self._machine))

    def _end(self, problem: Problem, shown: Problem) -> None:
        self._machine = None
        self._leader.fail(problem)
        self._end_answers(shown)
        self._tasks.spawn_essential("Freeing a plan", self._leader.free(problem.what))

    def _show(self, recovery: Recovery) -> None:
        now, fresh = self._bus.now, recovery.text
        for said in (now.recovery.text if now.recovery else "", now.logs[-1].text if now.logs else ""):
            fresh = fresh.removeprefix(said).strip()  # log only the new end of a growing sentence
        if fresh:
            self._journal.warn(fresh)
        self._bus.publish(msgspec.structs.replace(recovery, since=time() - (monotonic() - recovery.since)))

    async def _carry_out(self, actions: Sequence[recovery_actions.Lasting], machine: RecoveryStates) -> None:
        async with self._turn:
            for action in actions:
                if machine is self._machine:  # else the user loaded another model meanwhile
                    await self._do(action, machine)

    async def _do(self, action: recovery_actions.Lasting, machine: RecoveryStates) -> None:
        match action:
            case recovery_actions.Seek(without=without):
                await self._seek(without, machine)
            case recovery_actions.Rebuild(plan=plan) if self._found and self._found.plan is plan:
                self._answers.suspend()
                self._sessions.stop(NotLoaded("A Mac was lost meanwhile.", "Try again once the model runs.").problem)
                self._tasks.spawn_essential("Loading again", self._load_again(self._found))
            case recovery_actions.Relink():
                await self._relink(machine)
            case recovery_actions.Free():
                self._answers.suspend()
                await self._leader.free("It waits for a Mac that was lost.")

    async def _seek(self, without: frozenset[str], machine: RecoveryStates) -> None:
        try:
            self._found = await self._planning.plan_on(self._request, without, self._no_group)
        except MaclusterError as error:
            actions = machine.unfit(error.problem, monotonic())
        else:
            actions = machine.found(self._found.plan, monotonic(), self._found.words)
        if machine is self._machine:
            self._act(actions)

    async def _relink(self, machine: RecoveryStates) -> None:
        try:
            self._assessment.check(machine.plan)
        except MaclusterError as error:
            self._act(machine.lost("", error.problem, self._answers.under_way, monotonic()))
        else:
            await self._leader.relink()

    async def _load_again(self, planned: Planned) -> None:
        with suppress(NotLoaded):  # another plan replaced it meanwhile
            await self._lead(planned._replace(verify=False))

    async def _lead(self, planned: Planned) -> None:
        plan, directory, verify, lacks, _, drafter = planned
        await self._leader.load(plan, directory, verify=verify, lacks=lacks, drafter=drafter)
