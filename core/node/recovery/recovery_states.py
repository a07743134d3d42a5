"""The recovery of a plan that was ready when a Mac is lost: a pure state machine, with the clock passed in.

    running → suspect → hold → replan → rebuild → running
                          │       └→ wait → resume | replan
                          └→ resume → running          … or parked

A link that breaks is made again (resume): every Mac keeps its layers. If a stage is lost, another split is made over
the connected Macs (replan), whose workers load it and prefill the answers again (rebuild). If none fits, everything is
kept until the Mac is back (wait); if it kept its layers, the ring is only linked again. A recovery that fails a few
times in a row, without a token in between, is parked: the answers end, and can be continued.

Events go in, with monotonic seconds; actions come out, to be carried out in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from core import events
from core.errors import LinkTimeout, NoAnswer, Parked, Problem
from core.events import Plan, RecoveryChoice, RecoveryState
from core.link.liveness import DEAD_S, LATE_S, ProgressClock, stuck_stage
from core.node.recovery import recovery_texts as words
from core.node.recovery.recovery_actions import Action, CancelAnswers, End, Free, Rebuild, Relink, Seek, ShowRecovery
from core.node.recovery.reprefill_progress import ReprefillProgress

MOST_ATTEMPTS: Final = 4
MOST_STRIKES: Final = 3
BACK_OFF_S: Final = (0.0, 0.0, 0.5, 1.0, 2.0)
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


class RecoveryStates:
    """The recovery of one plan, from the moment when it was ready. `answers` are the answers in progress: request id →
    (tokens of the prompt, tokens written).
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = self._before = plan
        self.state: RecoveryState = "running"
        self._answers: Mapping[str, tuple[int, int]] = {}
        self._rereading = ReprefillProgress()
        self._problem = Problem(kind="LinkLost", what="")
        self._unfit: Problem | None = None
        self._proposal: Plan | None = None
        self._mac = self._copied = ""
        self._gone: set[str] = set()  # Macs of the plan that are not linked
        self._silent: set[str] = set()  # subset of `_gone` that was silent before
        self._barred: set[str] = set()  # Macs that can't serve this model
        self._suspects: set[str] = set()
        self._strikes: Counter[str] = Counter()
        self._attempts = self._seeks = 0  # `_seeks`: unanswered ones
        self._is_whole = False  # whether a Mac is unlinked, but all may still have their layers
        self._is_patient = False  # whether the user prefers to wait
        self._since = self._moved_at = self._shown_at = self._seek_at = self._ticked_at = 0.0
        self._progress = ProgressClock()

    def suspected(self, device_id: str, now: float) -> list[Action]:
        """A Mac is silent, perhaps only for a moment."""
        if not self._has(device_id):
            return []
        self._suspects.add(device_id)
        if self.state != "running":
            return []
        self._since = now
        return self._enter("suspect", now, words.suspect(self._name(device_id)), mac=device_id)

    def linked(self, device_id: str, now: float) -> list[Action]:
        """A Mac has a control link, perhaps a new one, and is heard."""
        self._suspects.discard(device_id)
        if self.state == "suspect" and not self._suspects:
            return self._enter("running", now, "")
        if device_id not in self._gone:
            return self._hold_on(now)
        self._gone.discard(device_id)
        is_back = self._is_whole and not self._gone
        return self._seek(now) if self.state == "wait" or (self.state == "hold" and is_back) else []

    def broke(self, device_id: str, problem: Problem, now: float) -> list[Action]:
        if self.state not in ("running", "suspect", "stuck"):
            return []
        self._begin(device_id, problem, now)
        return self._enter("resume", now, words.RESUME, mac=device_id)

    def lost(
        self, device_id: str, problem: Problem, answers: Mapping[str, tuple[int, int]], now: float
    ) -> list[Action]:
        """The plan can't run because of that Mac; "" for none in particular."""
        self._answers = answers
        if problem.kind in FINAL:
            return [*self._enter("running", now, ""), End(problem, problem)]
        if self.state in ("running", "suspect", "stuck"):
            self._begin(device_id, problem, now)
        self._attempts += self.state not in ("hold", "replan", "wait")
        self._is_whole = (
            problem.kind == "LinkLost"
            and device_id in self._gone
            and (self._is_whole or self.state in ("running", "suspect", "stuck", "resume"))
        )
        self._problem, self._mac = problem, device_id
        self._blame(device_id, problem)
        if self._attempts > MOST_ATTEMPTS:
            return self._park(problem, now)
        may_be_back = self._is_whole and device_id not in self._silent
        self._seek_at = now + max(BACK_OFF_S[self._attempts], BACK_S if may_be_back else 0.0)
        self._rereading.stop()
        return [*self._enter("hold", now, words.hold(problem), mac=device_id), *self._hold_on(now)]

    def gone(self, device_id: str) -> None:
        if self._has(device_id):
            self._gone.add(device_id)
            (self._silent.add if device_id in self._suspects else self._silent.discard)(device_id)
        self._suspects.discard(device_id)

    def found(self, plan: Plan, now: float, copied: str = "") -> list[Action]:
        """The new split; `copied` says what is copied first."""
        if not self._is_last():
            return []
        self._unfit, self._proposal = None, plan
        if self._is_patient and self._gone - {stage.device_id for stage in plan.stages}:
            return self._wait(now)
        self._is_whole, self._is_patient = False, False
        self.plan, self._moved_at, self._copied = plan, now, copied
        return [*self._show_rebuild(now), Rebuild(plan)]

    def unfit(self, problem: Problem, now: float) -> list[Action]:
        if not self._is_last():
            return []
        self._unfit, self._proposal = problem, None
        self._strikes.clear()  # a Mac that failed often is better than none
        return self._wait(now)

    def ready(self, answers: Mapping[str, tuple[int, int]], now: float) -> list[Action]:
        self._answers = answers
        if self.state == "resume":
            return self._recovered(now)
        if self.state != "rebuild" or self._rereading.since is not None:
            return []
        self._copied = ""
        self._rereading.begin(answers, now)
        return self._recovered(now) if self._rereading.is_over(now) else self._show_rebuild(now)

    def progressed(self, now: float) -> None:
        self._moved_at = now

    def read(self, request_id: str, done: int, now: float) -> list[Action]:
        self._progress.moved(now)
        if not self._rereading.read(request_id, done, now):
            return self._unstuck(now)
        return self._show_rebuild(now) if now >= self._shown_at + SHOW_EVERY_S else []

    def wrote(self, request_id: str, now: float) -> list[Action]:
        self._progress.moved(now)
        self._attempts = 0
        self._strikes.clear()
        self._rereading.wrote(request_id, now)
        return self._recovered(now) if self._rereading.is_over(now) else self._unstuck(now)

    def chose(self, choice: RecoveryChoice, answers: Mapping[str, tuple[int, int]], now: float) -> list[Action]:
        """Do what the user chose; nothing if that is not among the choices."""
        self._answers = answers
        if choice not in self._choices():
            return []
        match choice:
            case "replan":
                self._is_patient = False
                return self._seek(now) if self.state == "wait" else []
            case "wait":
                self._is_patient = True
                return self._wait(now, free=self.state == "rebuild")
            case "save":
                return self._park(self._problem, now)
            case "stop":
                if self.state != "wait":
                    return [CancelAnswers()]
                return [*self._enter("running", now, ""), CancelAnswers(), End(self._problem, self._problem)]

    def tick(
        self, answers: Mapping[str, tuple[int, int]], now: float, steps: Sequence[int] | None = None
    ) -> list[Action]:
        """Time passes (about four times a second). `steps`: the last finished step of each stage, in ring order."""
        self._answers = answers
        if now > self._ticked_at + LATE_S:
            self._progress.rest()  # this Mac slept: the silence means nothing
        self._ticked_at = now
        match self.state:
            case "hold":
                return self._hold_on(now)
            case "wait" if now > self._since + WAIT_S:
                return self._park(self._problem, now)
            case "wait" if now >= self._seek_at:
                return self._seek(now)
            case "resume" if now > self._moved_at + RELINK_S:
                problem = LinkTimeout(f"The links were not made again within {RELINK_S:.0f} s.").problem
                return self.lost("", problem, answers, now)
            case "rebuild":
                return self._see_through(now)
            case "suspect" if not self._suspects:
                return self._enter("running", now, "")
            case "running" | "stuck":
                return self._watch(now, steps or ())
        return []

    def _begin(self, device_id: str, problem: Problem, now: float) -> None:
        self._before, self._since, self._moved_at, self._is_whole = self.plan, now, now, False
        self._problem, self._mac, self._unfit, self._proposal = problem, device_id, None, None
        self._is_patient = False
        self._progress.rest()

    def _blame(self, device_id: str, problem: Problem) -> None:
        """Bar that Mac from this plan, at once or after some failures; the head never is."""
        if device_id in ("", self.plan.head.device_id):
            device_id = self.plan.stages[-1].device_id if problem.kind == "LinkLost" else ""
        if problem.kind in PASSING:
            self._strikes[device_id] += 1
        elif device_id:
            self._barred.add(device_id)

    def _hold_on(self, now: float) -> list[Action]:
        unsure = self._suspects - self._gone and now < self._since + 2 * DEAD_S
        if self.state != "hold" or now < self._seek_at or unsure:
            return []
        return self._seek(now)

    def _seek(self, now: float) -> list[Action]:
        if self._is_whole and not self._gone:
            self._moved_at = now
            return [*self._enter("resume", now, words.RESUME, mac=self._mac), Relink()]
        self.state, self._seek_at = "replan", now + SEEK_EVERY_S
        self._seeks += 1
        worn = {mac for mac, count in self._strikes.items() if count >= MOST_STRIKES}
        return [Seek(frozenset(self._barred | worn))]

    def _is_last(self) -> bool:
        """Whether this answers the last Seek; earlier ones knew of fewer losses."""
        self._seeks -= 1
        return self.state == "replan" and not self._seeks

    def _wait(self, now: float, *, free: bool = False) -> list[Action]:
        self._rereading.stop()
        text = words.wait(self._problem, self._unfit, [self._name(mac) for mac in sorted(self._gone)])
        actions = self._enter("wait", now, text, mac=self._mac, fix=words.CAN_WAIT)
        return [Free(), *actions] if free else actions

    def _see_through(self, now: float) -> list[Action]:
        if self._rereading.since is None:
            late = now > self._moved_at + LOAD_S
            problem = LinkTimeout(f"The layers were not loaded within {LOAD_S:.0f} s.").problem
            return self.lost("", problem, self._answers, now) if late else []
        self._rereading.keep(self._answers)
        return self._recovered(now) if self._rereading.is_over(now) else []

    def _watch(self, now: float, steps: Sequence[int]) -> list[Action]:
        if not self._answers:
            self._progress.rest()
            return self._unstuck(now)
        self._progress.began(now)
        if not self._progress.is_stuck(now):
            return []
        behind = stuck_stage(steps) if len(steps) == len(self.plan.stages) else None
        mac = "" if behind is None else self.plan.stages[behind].device_id
        text = words.stuck(self._name(mac) if mac else "")
        if self._progress.is_dead(now):
            return self.lost(mac, NoAnswer(text).problem, self._answers, now)
        if self.state == "stuck":
            return []
        self._since = now
        return self._enter("stuck", now, text, mac=mac)

    def _unstuck(self, now: float) -> list[Action]:
        return self._enter("running", now, "") if self.state == "stuck" else []

    def _recovered(self, now: float) -> list[Action]:
        text = words.recovered(self._before, self.plan, self._name(self._mac), self._problem, now - self._since)
        self._rereading.stop()
        self._is_whole = False
        self._gone &= {stage.device_id for stage in self.plan.stages}
        return self._enter("running", now, text)

    def _park(self, problem: Problem, now: float) -> list[Action]:
        text = words.parked(problem)
        return [*self._enter("parked", now, text, fix=Parked.fix_by_default), End(problem, Parked(text).problem)]

    def _show_rebuild(self, now: float) -> list[Action]:
        tokens = sum(prompt + written for prompt, written in self._answers.values())
        is_mirrored = self._before.mirror_bytes > 0
        text = words.rebuild(self._problem, tokens, len(self.plan.stages), self._copied, is_mirrored=is_mirrored)
        return self._enter("rebuild", now, text, mac=self._mac)

    def _enter(self, state: RecoveryState, now: float, text: str, *, mac: str = "", fix: str = "") -> list[Action]:
        self.state, self._shown_at = state, now
        recovery = events.Recovery(
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
        return [ShowRecovery(recovery)]

    def _choices(self) -> tuple[RecoveryChoice, ...]:
        match self.state:
            case "hold" | "replan" | "rebuild":
                return ("replan", "wait", "save", "stop") if self._gone else ("replan", "save", "stop")
            case "wait" if self._unfit:
                return ("wait", "save", "stop")
            case "wait":
                return ("wait", "replan", "save", "stop")
            case _:
                return ()

    def _has(self, device_id: str) -> bool:
        stages = (*self.plan.stages, *self._before.stages)
        return any(stage.device_id == device_id for stage in stages)

    def _name(self, device_id: str) -> str:
        stages = (*self.plan.stages, *self._before.stages)
        return next((s.peer for s in stages if s.device_id == device_id), device_id[:8] or "the ring")
