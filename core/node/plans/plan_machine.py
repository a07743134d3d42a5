"""The plan machine: a plan that this Mac leads, from its choice until it is unloaded or parked. Pure, with the clock
passed in.

Events only note what is so: the stages' states, which Macs are linked, silent or gone, answers, choices. `step` then
finds where the plan stands, and the orders that bring it on. An order is given again while a stage's state shows no
effect, so a lost message heals with the next beat; an order that is given twice does nothing the second time.

    loading → linking → proving → running → suspect | stuck → running
                                     ├→ resume → running
                                     └→ hold → replan → rebuild → running
                                          │       └→ wait → resume | replan
                                          └→ resume                       … or parked, or failed
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf
from typing import Final, Literal

import msgspec

from core import events
from core.errors import LinkTimeout, NoAnswer, NotLoaded, Parked, Problem
from core.events import Plan, PlanPhase, RecoveryChoice, RecoveryState, StageState, StageStatus
from core.link.liveness import DEAD_S, LATE_S, ProgressClock, stuck_stage
from core.node.peers.stage_state import HeldStage, PlanId
from core.node.plans import orders, texts
from core.node.plans.rereading import Rereading
from core.node.ring.layer_ownership import first_fault, other_file
from core.worker.messages import Loaded

Ring = Literal["loading", "linking", "proving", "running"]


def of(*phases: PlanPhase) -> frozenset[PlanPhase]:
    return frozenset(phases)


LOADING: Final = of("loading", "linking", "proving")
RUNNING: Final = of("running", "suspect", "stuck")
LOST: Final = of("hold", "replan", "wait")
OVER: Final = of("parked", "failed")
STOPPED: Final = LOST | OVER

# from these phases to these, if that is so, with these orders; a plan that was ready once recovers, any other one fails
TRANSITIONS: Final[tuple[tuple[frozenset[PlanPhase], frozenset[PlanPhase], str], ...]] = (
    (of("loading"), of("linking"), "every Mac holds its layers, of the same files: Link"),
    (of("loading"), of("proving"), "the only Mac holds all layers: RunProof"),
    (of("linking"), of("proving"), "every Mac is linked: RunProof"),
    (of("proving"), of("linking"), "a link broke: Link under the next generation"),
    (of("proving"), of("running"), "the ring has computed: Ready"),
    (LOADING, of("failed"), "a Mac is lost, late, or has other files; links break too often; the proof fails: End"),
    (LOADING | RUNNING, of("resume"), "a link broke, and every Mac keeps its layers: Link"),
    (LOADING | RUNNING | of("resume", "rebuild", "hold", "replan"), of("hold"), "a Mac is lost, or late: Lost"),
    (of("running"), of("suspect"), "a Mac is silent"),
    (of("running"), of("stuck"), "every Mac responds, but no step returns"),
    (of("suspect", "stuck"), of("running"), "the Mac is heard, or a step returns"),
    (of("resume"), of("running"), "every Mac is linked again: Ready"),
    (of("hold", "wait"), of("resume"), "all lost Macs are back, with their layers: Link"),
    (of("hold", "wait"), of("replan"), "no Mac is expected back now: Seek"),
    (of("replan"), of("rebuild"), "another split is found: Rebuild"),
    (of("replan"), of("wait"), "nothing fits, or the user prefers to wait"),
    (of("hold", "rebuild", "wait"), of("wait"), "the user prefers to wait: Free"),
    (of("rebuild"), of("running"), "the ring is ready, and has read the answers again: Ready"),
    (of("resume", "rebuild") | RUNNING, of("parked"), "a Mac is lost after too many recoveries: End"),
    (of("rebuild") | LOST, of("parked"), "the user saves the answers, or an hour has passed: End"),
    (RUNNING | LOST | of("resume", "rebuild"), of("failed"), "the user stops, or has to decide whom to trust: End"),
)

MAX_RELINKS: Final = 3
MOST_ATTEMPTS: Final = 4
MOST_STRIKES: Final = 3
BACK_OFF_S: Final = (0.0, 0.0, 0.5, 1.0, 2.0)
REPEAT_S: Final = 2.0  # some beats
PREPARE_S = 90.0
STILL_S = 120.0  # a worker reports every tensor that it reads
PROVE_S = 60.0  # from one part of the proof to the next; a stuck rank would block the others for ever
READ_BYTES_PER_S: Final = 50e6
WAIT_S: Final = 3600.0
SEEK_EVERY_S: Final = 5.0
SHOW_EVERY_S: Final = 0.25
BACK_S: Final = 0.5  # a broken link may come back at once, with the Mac's layers
LOAD_S: Final = 600.0
RELINK_S: Final = 60.0
# a new worker or link may be all that the Mac needs
PASSING: Final = frozenset({
    "LinkLost", "LinkTimeout", "NoAnswer", "HandshakeError", "GroupFailed", "WorkerDied", "NotLoaded",
})  # fmt: skip
# the user has to decide whom to trust: wait
FINAL: Final = frozenset({"NotPaired", "RosterFork", "RosterError", "TrustError"})

Answers = Mapping[str, tuple[int, int]]  # request id → (tokens of the prompt, tokens written)


class Failures:
    """Counts of failures in a row, without a token in between."""

    def __init__(self) -> None:
        self.breaks = 0  # of links, since a Mac was lost
        self.attempts = 0  # recoveries
        self.strikes: Counter[str] = Counter()  # by Mac


class PlanMachine:
    """One plan and the plans that continue it. `recovers`: a loss of a Mac is survived, as it is once it was ready."""

    def __init__(self, plan: Plan, plan_id: PlanId, now: float, *, recovers: bool = False) -> None:
        self.phase: PlanPhase = "loading"
        self.recovers = recovers
        self._since = self._shown_at = self._seek_at = self._ticked_at = now
        self._before = plan
        self._take(plan, plan_id, now)
        self._answers: Answers = {}
        self._given: list[orders.Order] = []
        # a recovery
        self._rereading = Rereading()
        self._progress = ProgressClock()
        self._failures = Failures()
        self._problem = Problem(kind="LinkLost", what="")
        self._unfit: Problem | None = None
        self._proposal: Plan | None = None
        self._mac = self._copied = ""
        self._loss: tuple[str, Problem] | None = None  # not judged yet
        self._search = 0  # number of the last one
        self._result: tuple[Plan, PlanId] | Problem | None = None  # of that one
        self._gone: set[str] = set()  # Macs of the plan that are not linked
        self._silent: set[str] = set()  # subset of `_gone` that was silent before
        self._barred: set[str] = set()  # Macs that can't serve this model
        self._suspects: dict[str, None] = {}  # in the order of their silence
        self._is_whole = False  # whether a Mac is unlinked, but all may still have their layers
        self._is_patient = False  # whether the user prefers to wait

    def _take(self, plan: Plan, plan_id: PlanId, now: float) -> None:
        """Begin with another split; nothing is known about its stages."""
        self.plan, self.id = plan, plan_id
        self._stages: dict[str, HeldStage] = {}
        self._shown: dict[str, StageState] = {}
        self._reported_at: dict[str, float] = {}  # last change of each stage
        self._ordered: dict[tuple[str, str, int], float] = {}
        self._brought_at: float | None = None  # when every Mac had the files
        self._proof, self._proof_at = "", inf
        self._ready_gen = -1
        self._moved_at = now

    # ---- what is so

    @property
    def is_ready(self) -> bool:
        """Whether the ring computes."""
        return self.phase not in STOPPED and self._ring == "running"

    @property
    def is_loading(self) -> bool:
        return self.phase not in STOPPED and self._ring != "running"

    @property
    def led(self) -> Plan | None:
        """The plan while it runs or may run again without another split."""
        return None if self.phase in STOPPED else self.plan

    @property
    def computed_by(self) -> str:
        """A sentence that names the Macs and their mlx-lm."""
        held = [(stage.peer, self._loaded.get(stage.device_id)) for stage in self.plan.stages]
        return f"Computed by {', '.join(f'{mac} (mlx-lm {loaded.mlx_lm})' for mac, loaded in held if loaded)}."

    def path_from(self, device_id: str) -> events.PathKind:
        stage = self._stages.get(device_id)
        return stage.path if stage else ""

    def brought(self, now: float) -> None:
        """Every Mac has the files of its layers."""
        self._brought_at = self._moved_at = now

    def heard(self, device_id: str, stage: HeldStage, now: float) -> bool:
        """Note a stage's state, unless it is of another plan or known; returns whether it was noted."""
        if stage.plan != self.id or stage == self._stages.get(device_id) or device_id not in self._macs:
            return False
        self._stages[device_id] = stage
        self._moved_at = self._reported_at[device_id] = now
        if stage.phase == "lost":
            self.failed(device_id, stage.problem or NotLoaded("It no longer has that plan.").problem)
        self._show_change(device_id, stage)
        return True

    def failed(self, device_id: str, problem: Problem) -> None:
        """Nothing comes of a stage, in the words of its Mac."""
        what = f"{self._name(device_id)}: {problem.what}"
        self.lost(device_id, msgspec.structs.replace(problem, what=what))

    def differs(self, device_id: str, ours: Mapping[str, str], theirs: Mapping[str, str]) -> None:
        """The hashes of the files of a Mac that has other ones than this Mac."""
        if device_id in self._macs and (problem := other_file(self.plan, device_id, ours, theirs)):
            self._lose(device_id, problem)

    def proving(self, now: float) -> None:
        """The proof goes on."""
        self._proof_at = now

    def proved(self, plan_gen: int, proof: str) -> None:
        """The proof succeeded; it holds for the layers, whatever links come later."""
        if plan_gen == self.plan.plan_gen and self._ring == "proving":
            self._proof = proof

    def disproved(self, plan_gen: int, problem: Problem) -> None:
        if plan_gen == self.plan.plan_gen and self._ring == "proving":
            what = f"{problem.what} {self.computed_by}"
            self._lose("", msgspec.structs.replace(problem, what=what))

    def lost(self, device_id: str, problem: Problem) -> None:
        """A stage is lost; "" for none in particular."""
        if device_id in self._macs:
            self._show_stage(device_id, "lost", detail=problem.what)
        if not device_id or device_id in self._macs:
            self._lose(device_id, problem)

    def distrusted(self, device_id: str, problem: Problem) -> None:
        """A Mac of the plan must see no more prompts."""
        if self.phase not in STOPPED and any(part.device_id == device_id for part in self.plan.parts):
            self.lost(device_id if device_id in self._macs else "", problem)

    def suspected(self, device_id: str) -> None:
        """A Mac is silent, perhaps only for a moment."""
        if device_id in self._names:
            self._suspects[device_id] = None

    def linked(self, device_id: str, now: float) -> None:
        """A Mac has a control link, perhaps a new one, and is heard."""
        self._suspects.pop(device_id, None)
        if device_id in self._gone:
            self._gone.discard(device_id)
            if self.phase == "wait":
                self._seek_at = now

    def gone(self, device_id: str) -> None:
        if device_id in self._names:
            self._gone.add(device_id)
            (self._silent.add if device_id in self._suspects else self._silent.discard)(device_id)
        self._suspects.pop(device_id, None)

    def found(self, search: int, plan: Plan, plan_id: PlanId, copied: str = "") -> None:
        """The split that a Seek led to; `copied` says what is copied first."""
        if self._is_last(search):
            self._result, self._copied = (plan, plan_id), copied

    def unfit(self, search: int, problem: Problem) -> None:
        if self._is_last(search):
            self._result = problem

    def progressed(self, now: float) -> None:
        """Files come to a Mac."""
        self._moved_at = now

    def read(self, request_id: str, done: int, now: float) -> None:
        self._progress.moved(now)
        self._rereading.read(request_id, done, now)

    def wrote(self, request_id: str, now: float) -> None:
        self._progress.moved(now)
        self._failures = Failures()
        self._rereading.wrote(request_id, now)

    def chose(self, choice: RecoveryChoice, answers: Answers, now: float) -> None:
        """Do what the user chose; nothing if that is not among the choices."""
        self._answers = answers
        if choice not in self._choices():
            return
        match choice:
            case "replan":
                self._is_patient = False
                if self.phase == "wait":
                    self._seek_at = now
            case "wait":
                self._is_patient = True
                if self.phase == "rebuild":
                    self._given.append(orders.Free())
                self._wait(now)
            case "save":
                self._park(self._problem, now)
            case "stop":
                self._given.append(orders.CancelAnswers())
                if self.phase == "wait":
                    self._end(self._problem, now)

    # ---- where the plan stands

    def step(self, now: float, answers: Answers, steps: Sequence[int] | None = None) -> list[orders.Order]:
        """Go where the plan stands by what is so; returns the orders in their order. `steps`: the last finished step of
        each stage, in ring order.
        """
        self._answers = answers
        if now > self._ticked_at + LATE_S:
            self._progress.rest()  # this Mac slept: the silence means nothing
        self._ticked_at = now
        while self._moves(now, steps or ()):
            pass
        self._order(now)
        given, self._given = self._given, []
        return given

    def _moves(self, now: float, steps: Sequence[int]) -> bool:  # noqa: C901 - one row for each phase
        """Make one transition, if what is so asks for one."""
        if self.phase in OVER:
            return False
        if self._loss:
            return self._judge(*self._loss, now)
        if self.phase not in LOST:
            # a fault shows before the slowest Mac has loaded its own layers
            if not self._proof and (fault := first_fault(self.plan, self._loaded)):
                self._lose(*fault)
                return True
            if late := self._late(now):
                self.lost(*late)
                return True
            for device_id, stage in self._stages.items():
                if (stage.phase, stage.link_gen) == ("broken", self.plan.plan_gen):
                    return self._relink(device_id, stage.problem or Problem(kind="LinkLost", what=""), now)
        match self.phase:
            case "loading" | "linking" | "proving":
                return self._follow(now)
            case "running" if self._suspects:
                self._since, mac = now, next(reversed(self._suspects))
                return self._enter("suspect", now, texts.suspect(self._name(mac)), mac=mac)
            case "suspect" if not self._suspects:
                return self._enter("running", now, "")
            case "running" | "stuck":
                return self._watch(now, steps)
            case "hold" if self._may_seek(now):
                return self._seek(now)
            case "replan" if self._result:
                return self._replan(self._result, now)
            case "wait" if now > self._since + WAIT_S:
                return self._park(self._problem, now)
            case "wait" if now >= self._seek_at:
                return self._seek(now)
            case "resume":
                return self._ring == "running" and self._recovered(now)
            case "rebuild":
                return self._see_through(now)
            case _:
                return False

    @property
    def _ring(self) -> Ring:
        """How far the ring of this split is."""
        stages = [self._stages.get(stage.device_id) for stage in self.plan.stages]
        is_alone = len(stages) == 1
        held = [stage for stage in stages if stage and stage.port and stage.loaded and (is_alone or stage.files)]
        if len(held) < len(stages) or len({stage.files for stage in held}) > 1:
            return "loading"
        gen = self.plan.plan_gen
        if not is_alone and any((stage.phase, stage.link_gen) != ("linked", gen) for stage in held):
            return "linking"
        return "running" if self._proof else "proving"

    def _order(self, now: float) -> None:
        """Order what the ring needs next, and again what had no effect."""
        if self.phase in STOPPED or self._brought_at is None:
            return
        plan, ring = self.plan, self._ring
        own = self._stages.get(plan.head.device_id)
        for index, place in enumerate(plan.stages):
            stage = self._stages.get(place.device_id)
            if stage is None:
                self._again(orders.Prepare(plan, index), "prepare", place.device_id, now)
            elif own and own.files and stage.files and own.files != stage.files:
                self._again(orders.AskFiles(plan, index), "files", place.device_id, now)
            elif ring == "linking" and stage.link_gen < plan.plan_gen:
                after = self._stages[plan.stages[(index + 1) % len(plan.stages)].device_id]
                self._again(orders.Link(plan, index, after.port), "link", place.device_id, now)
        if ring == "proving" and ("prove", "", plan.plan_gen) not in self._ordered:
            self._proof_at = now
            self._again(orders.RunProof(plan.plan_gen), "prove", "", now)

    def _again(self, order: orders.Order, what: str, device_id: str, now: float) -> None:
        key = (what, device_id, self.plan.plan_gen)
        if now >= self._ordered.get(key, -inf) + REPEAT_S:
            self._ordered[key] = now
            self._given.append(order)

    def _late(self, now: float) -> tuple[str, Problem] | None:
        """The Mac that takes too long, and with what; "" for none in particular."""
        ring = self._ring
        if ring == "loading" and self._brought_at is not None:
            return self._idle(self._brought_at, now)
        limit_s = PROVE_S + sum(stage.weight_bytes for stage in self.plan.stages) / READ_BYTES_PER_S
        if ring == "proving" and now > self._proof_at + limit_s:
            problem = LinkTimeout(f"The proof made no progress for {limit_s:.0f} s.").problem
            return self.plan.head.device_id, problem
        if self.phase == "resume" and now > self._moved_at + RELINK_S:
            return "", LinkTimeout(f"The links were not made again within {RELINK_S:.0f} s.").problem
        if self.phase == "rebuild" and ring != "running" and now > self._moved_at + LOAD_S:
            return "", LinkTimeout(f"The layers were not loaded within {LOAD_S:.0f} s.").problem
        return None

    def _idle(self, begun: float, now: float) -> tuple[str, Problem] | None:
        """A Mac that does not begin to load, or that reads nothing more."""
        for stage in self.plan.stages:
            known = self._stages.get(stage.device_id)
            has_begun = known is not None and known.port > 0
            limit_s = STILL_S if has_begun else PREPARE_S
            is_held = known is not None and known.loaded is not None
            if not is_held and now - self._reported_at.get(stage.device_id, begun) > limit_s:
                how = "has read nothing more for" if has_begun else "has not begun to load after"
                return stage.device_id, LinkTimeout(f"{stage.peer} {how} {limit_s:.0f} s.").problem
        return None

    def _relink(self, device_id: str, problem: Problem, now: float) -> bool:
        """A link broke, but the layers are kept: link again under the next generation, up to `MAX_RELINKS` times."""
        self._failures.breaks += 1
        if self._failures.breaks > MAX_RELINKS:
            self._lose(device_id, problem)
            return True
        self._next_gen()
        if self.recovers and self.phase in RUNNING | LOADING:
            self._begin(device_id, problem, now)
            return self._enter("resume", now, texts.RESUME, mac=device_id)
        return True

    def _next_gen(self) -> None:
        """No frame of the old links is taken for one of the new links."""
        self.plan = msgspec.structs.replace(self.plan, plan_gen=self.plan.plan_gen + 1)

    def _follow(self, now: float) -> bool:
        ring = self._ring
        if ring == "running":
            self.recovers = True
            self._note_ready()
        self.phase, before = ring, self.phase
        return before != ring

    def _note_ready(self) -> None:
        if self._ready_gen != self.plan.plan_gen:
            self._ready_gen = self.plan.plan_gen
            self._given.append(orders.Ready(self._proof))

    def _lose(self, device_id: str, problem: Problem) -> None:
        if self.phase not in OVER:
            self._loss = (device_id, problem)

    def _judge(self, device_id: str, problem: Problem, now: float) -> bool:
        """The plan can't run because of that Mac."""
        before, self._loss = self.phase, None
        if before == "wait" and problem.kind not in FINAL:
            self._is_whole = self._is_whole and problem.kind == "LinkLost"
            return True
        if before not in LOST:
            self._given.append(orders.Lost(device_id, problem, self._ring == "linking"))
        if problem.kind in FINAL or not self.recovers:
            return self._end(problem, now)
        if before in RUNNING | LOADING:
            self._begin(device_id, problem, now)
        self._failures.attempts += before not in LOST
        self._is_whole = (
            problem.kind == "LinkLost"
            and device_id in self._gone
            and (self._is_whole or before in RUNNING or before == "resume")
        )
        self._problem, self._mac, self._failures.breaks = problem, device_id, 0
        self._blame(device_id, problem)
        if self._failures.attempts > MOST_ATTEMPTS:
            return self._park(problem, now)
        may_be_back = self._is_whole and device_id not in self._silent
        self._seek_at = now + max(BACK_OFF_S[self._failures.attempts], BACK_S if may_be_back else 0.0)
        self._rereading.stop()
        return self._enter("hold", now, texts.hold(problem), mac=device_id)

    def _begin(self, device_id: str, problem: Problem, now: float) -> None:
        """Note what a recovery began with."""
        self._before, self._since, self._moved_at, self._is_whole = self.plan, now, now, False
        self._problem, self._mac, self._unfit, self._proposal = problem, device_id, None, None
        self._is_patient = False
        self._progress.rest()

    def _blame(self, device_id: str, problem: Problem) -> None:
        """Bar that Mac from this plan, at once or after some failures; the head never is."""
        if device_id in ("", self.plan.head.device_id):
            device_id = self.plan.stages[-1].device_id if problem.kind == "LinkLost" else ""
        if problem.kind in PASSING:
            self._failures.strikes[device_id] += 1
        elif device_id:
            self._barred.add(device_id)

    def _may_seek(self, now: float) -> bool:
        is_unsure = bool(self._suspects.keys() - self._gone) and now < self._since + 2 * DEAD_S
        return self._is_back or (now >= self._seek_at and not is_unsure)

    @property
    def _is_back(self) -> bool:
        """Whether all Macs are linked again, and may have their layers still."""
        return self._is_whole and not self._gone

    def _seek(self, now: float) -> bool:
        if self._is_back:
            self._moved_at = now
            self._next_gen()
            return self._enter("resume", now, texts.RESUME, mac=self._mac)
        self.phase, self._seek_at, self._result = "replan", now + SEEK_EVERY_S, None
        self._search += 1
        worn = {mac for mac, count in self._failures.strikes.items() if count >= MOST_STRIKES}
        self._given.append(orders.Seek(self._search, frozenset(self._barred | worn)))
        return True

    def _is_last(self, search: int) -> bool:
        """Whether this answers the last Seek; earlier ones knew of fewer losses."""
        return self.phase == "replan" and search == self._search

    def _replan(self, result: tuple[Plan, PlanId] | Problem, now: float) -> bool:
        self._result = None
        if isinstance(result, Problem):
            self._unfit, self._proposal = result, None
            self._failures.strikes.clear()  # a Mac that failed often is better than none
            return self._wait(now)
        plan, plan_id = result
        self._unfit, self._proposal = None, plan
        if self._is_patient and self._gone - {stage.device_id for stage in plan.stages}:
            return self._wait(now)
        self._is_whole, self._is_patient, before = False, False, self.plan
        self._take(plan, plan_id, now)
        self._show_rebuild(now)
        self._given.append(orders.Rebuild(before))
        return True

    def _wait(self, now: float) -> bool:
        self._rereading.stop()
        text = texts.wait(self._problem, self._unfit, [self._name(mac) for mac in sorted(self._gone)])
        return self._enter("wait", now, text, mac=self._mac, fix=texts.CAN_WAIT)

    def _see_through(self, now: float) -> bool:
        """Follow a rebuild: its ring, then the answers that are read again."""
        if self._ring != "running":
            return False
        self._note_ready()
        if self._rereading.since is None:
            self._copied = ""
            self._rereading.begin(self._answers, now)
            if not self._rereading.is_over(now):
                self._show_rebuild(now)
        self._rereading.keep(self._answers)
        if self._rereading.is_over(now):
            return self._recovered(now)
        if self._rereading.has_news and now >= self._shown_at + SHOW_EVERY_S:
            self._show_rebuild(now)
        return False

    def _watch(self, now: float, steps: Sequence[int]) -> bool:
        """Tell whether steps return."""
        if self._answers:
            self._progress.began(now)
        else:
            self._progress.rest()
        if not self._progress.is_stuck(now):
            return self.phase == "stuck" and self._enter("running", now, "")
        behind = stuck_stage(steps) if len(steps) == len(self.plan.stages) else None
        mac = "" if behind is None else self.plan.stages[behind].device_id
        text = texts.stuck(self._name(mac) if mac else "")
        if self._progress.is_dead(now):
            self._lose(mac, NoAnswer(text).problem)
            return True
        if self.phase == "stuck":
            return False
        self._since = now
        return self._enter("stuck", now, text, mac=mac)

    def _recovered(self, now: float) -> bool:
        self._note_ready()
        text = texts.recovered(self._before, self.plan, self._name(self._mac), self._problem, now - self._since)
        self._rereading.stop()
        self._is_whole = False
        self._gone &= self._macs
        return self._enter("running", now, text)

    def _park(self, problem: Problem, now: float) -> bool:
        text = texts.parked(problem)
        self._enter("parked", now, text, fix=Parked.fix_by_default)
        self._given.append(orders.End(problem, Parked(text).problem))
        return True

    def _end(self, problem: Problem, now: float) -> bool:
        self.phase = "failed"
        if self.recovers:
            self._show("running", now, "")
        self._given.append(orders.End(problem, problem))
        return True

    # ---- what is shown

    def _show_rebuild(self, now: float) -> None:
        tokens = sum(prompt + written for prompt, written in self._answers.values())
        is_mirrored = self._before.mirror_bytes > 0
        text = texts.rebuild(self._problem, tokens, self.plan, self._copied, is_mirrored=is_mirrored)
        self._enter("rebuild", now, text, mac=self._mac)

    def _enter(self, state: RecoveryState, now: float, text: str, *, mac: str = "", fix: str = "") -> bool:
        """Go to that phase, and show it."""
        self.phase = state
        self._show(state, now, text, mac, fix)
        return True

    def _show(self, state: RecoveryState, now: float, text: str, mac: str = "", fix: str = "") -> None:
        self._shown_at, self._rereading.has_news = now, False
        self._given.append(
            events.Recovery(
                state=state,
                text=text,
                fix=fix,
                mac=mac,
                since=self._since,
                requests=tuple(self._answers),
                tokens=sum(written for _, written in self._answers.values()),
                done=self._rereading.done,
                total=self._rereading.total,
                eta_s=self._rereading.eta_s(now),
                plan=self.plan if state == "rebuild" else self._proposal if state == "wait" else None,
                choices=self._choices(),
            )
        )

    def _choices(self) -> tuple[RecoveryChoice, ...]:
        match self.phase:
            case "hold" | "replan" | "rebuild":
                return ("replan", "wait", "save", "stop") if self._gone else ("replan", "save", "stop")
            case "wait" if self._unfit:
                return ("wait", "save", "stop")
            case "wait":
                return ("wait", "replan", "save", "stop")
            case _:
                return ()

    def _show_change(self, device_id: str, stage: HeldStage) -> None:
        match stage.phase:
            case "loading":
                self._show_stage(device_id, "loading", stage.done_bytes, stage.total_bytes)
            case "loaded" if not self._proof:
                self._show_stage(device_id, "linking" if len(self.plan.stages) > 1 else "ready")
            case "linked" if stage.link_gen == self.plan.plan_gen:
                self._show_stage(device_id, "ready")
            case "broken" if stage.link_gen == self.plan.plan_gen:
                self._show_stage(device_id, "broken", detail=stage.problem.what if stage.problem else "")

    def _show_stage(
        self, device_id: str, status: StageStatus, done_bytes: int = 0, total_bytes: int = 0, *, detail: str = ""
    ) -> None:
        held = self._loaded.get(device_id)
        weight = held.weight_bytes if held else 0
        state = StageState(
            device_id=device_id,
            status=status,
            done_bytes=done_bytes or weight,
            total_bytes=total_bytes or weight,
            weight_bytes=weight,
            detail=detail,
        )
        if self.phase not in STOPPED and state != self._shown.get(device_id):
            self._shown[device_id] = state
            self._given.append(state)

    @property
    def _loaded(self) -> dict[str, Loaded]:
        return {device_id: stage.loaded for device_id, stage in self._stages.items() if stage.loaded}

    @property
    def _macs(self) -> set[str]:
        return {stage.device_id for stage in self.plan.stages}

    @property
    def _names(self) -> dict[str, str]:
        """Names of the Macs of this split and the one that a recovery began with."""
        return {stage.device_id: stage.peer for stage in (*self._before.stages, *self.plan.stages)}

    def _name(self, device_id: str) -> str:
        return self._names.get(device_id, device_id[:8] or "the ring")
