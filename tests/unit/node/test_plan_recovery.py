"""Recovery of a plan that lost a Mac: each transition, and invariants for every order of events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import (
    DoesNotFit,
    LinkLost,
    MaclusterError,
    NotPaired,
    Problem,
    RosterError,
    RosterFork,
    StageFailed,
    TrustError,
    WorkerDied,
)
from core.events import Plan, Recovery, RecoveryChoice
from core.link.liveness import DEAD_S
from core.node.plans.orders import CancelAnswers, End, Free, Link, Order, Rebuild, Seek
from core.node.plans.plan_machine import (
    BACK_OFF_S,
    BACK_S,
    LOAD_S,
    LOST,
    MOST_ATTEMPTS,
    MOST_STRIKES,
    RELINK_S,
    SEEK_EVERY_S,
    SHOW_EVERY_S,
    WAIT_S,
    Answers,
    PlanMachine,
)
from tests.support.plan_machines import Macs, ready_ring
from tests.support.plans import PROOF, mac_id, plan_of
from tests.support.search import SEARCH

A, B, C = mac_id(0), mac_id(1), mac_id(2)
PLAN, OTHER = plan_of(3), plan_of(2, plan_gen=200)
GONE = LinkLost("mac1 is gone.").problem
DIED = WorkerDied("its worker ended.").problem
BROKEN = StageFailed("It ran out of memory.").problem
UNFIT = DoesNotFit("It needs 2.0 GB more.").problem
ASKED = {"r1": (100, 10), "r2": (50, 0)}


RELINK = "every Mac links again"
Action = Order | str


class Recovering:
    """The machine of a plan that was ready; each event is followed by a step, and returns what a recovery orders."""

    def __init__(self, plan: Plan) -> None:
        self.macs: Macs = ready_ring(plan)
        self.machine: PlanMachine = self.macs.machine
        self.sought: list[int] = []  # searches without an answer
        self.gone, self.relinked = self.machine.gone, plan.plan_gen

    @property
    def state(self) -> str:
        return "running" if self.machine.phase == "failed" else self.machine.phase

    @property
    def plan(self) -> Plan:
        return self.machine.plan

    def tick(self, answers: Answers, now: float) -> list[Action]:
        before, self.macs.now, self.macs.answers = self.machine.phase, now, answers
        given = self.macs.step()
        self.sought += [order.number for order in given if isinstance(order, Seek)]
        found: list[Action] = []
        for order in given:
            match order:
                case Recovery() | Free() | CancelAnswers() | End():
                    found.append(order)
                case Seek(without=without):
                    found.append(Seek(0, without))
                case Rebuild():
                    found.append(Rebuild(self.plan))
                case Link(plan=plan) if plan.plan_gen > self.relinked:
                    self.relinked = plan.plan_gen
                    found += [RELINK] * (before in LOST)
        return found

    def step(self, now: float) -> list[Action]:
        return self.tick(self.macs.answers, now)

    def suspected(self, device_id: str, now: float) -> list[Action]:
        self.machine.suspected(device_id)
        return self.step(now)

    def linked(self, device_id: str, now: float) -> list[Action]:
        self.machine.linked(device_id, now)
        return self.step(now)

    def broke(self, device_id: str, problem: Problem, now: float) -> list[Action]:
        if stage := self.macs.stages.get(device_id):
            self.machine.heard(device_id, msgspec.structs.replace(stage, phase="broken", problem=problem), now)
        return self.step(now)

    def lost(self, device_id: str, problem: Problem, answers: Answers, now: float) -> list[Action]:
        self.machine.lost(device_id, problem)
        return self.tick(answers, now)

    def found(self, plan: Plan, now: float, copied: str = "") -> list[Action]:
        """The answer to the oldest search that has none."""
        number = self.sought.pop(0) if self.sought else 0
        self.machine.found(number, plan, self.macs.new_id(), copied)
        return self.step(now)

    def unfit(self, problem: Problem, now: float) -> list[Action]:
        self.machine.unfit(self.sought.pop(0) if self.sought else 0, problem)
        return self.step(now)

    def ready(self, answers: Answers, now: float) -> list[Action]:
        """The Macs of the plan load, link and prove it."""
        self.macs.now, self.macs.answers = now, answers
        given = [*self.macs.load_all(), *self.macs.link_all()]
        self.machine.proved(self.plan.plan_gen, PROOF)
        shown = [order for order in given if isinstance(order, Recovery)]
        return [*shown, *self.step(now)]

    def progressed(self, now: float) -> None:
        self.machine.progressed(now)

    def read(self, request_id: str, done: int, now: float) -> list[Action]:
        self.machine.read(request_id, done, now)
        return self.step(now)

    def wrote(self, request_id: str, now: float) -> list[Action]:
        self.machine.wrote(request_id, now)
        return self.step(now)

    def chose(self, choice: RecoveryChoice, answers: Answers, now: float) -> list[Action]:
        self.machine.chose(choice, answers, now)
        return self.tick(answers, now)


def told(actions: Sequence[Action]) -> list[Recovery]:
    return [one for one in actions if isinstance(one, Recovery)]


def done(actions: Sequence[Action]) -> list[Action]:
    return [action for action in actions if not isinstance(action, Recovery)]


def lose(machine: Recovering, device_id: str = B, now: float = 0.0) -> list[Action]:
    """A Mac falls silent, and its control link ends."""
    machine.suspected(device_id, now)
    machine.gone(device_id)
    return machine.lost(device_id, GONE, ASKED, now)


def rebuilding(now: float = 0.0, answers: dict[str, tuple[int, int]] = ASKED) -> Recovering:
    """Recovery with a lost Mac whose layers the two others load."""
    machine = Recovering(PLAN)
    lose(machine, now=now)
    machine.found(OTHER, now)
    assert machine.state == "rebuild"
    return machine


def waiting(now: float = 0.0) -> Recovering:
    machine = Recovering(PLAN)
    lose(machine, now=now)
    machine.unfit(UNFIT, now)
    assert machine.state == "wait"
    return machine


def test_a_mac_that_is_silent_for_a_moment_costs_nothing() -> None:
    machine = Recovering(PLAN)
    (shown,) = told(machine.suspected(B, 1.0))
    assert (shown.state, shown.mac, shown.since) == ("suspect", B, 1.0)
    assert machine.suspected(C, 1.1) == []
    assert machine.linked(B, 1.2) == [], "the other one is silent still"
    (shown,) = told(machine.linked(C, 1.3))
    assert shown.state == "running"
    assert machine.suspected(mac_id(7), 2.0) == [], "a Mac outside the plan is none of its business"


def test_a_lost_stage_is_planned_anew_loaded_and_read_again() -> None:
    machine = Recovering(PLAN)
    shown, seek = lose(machine, now=1.0)
    assert isinstance(shown, Recovery)
    assert (shown.state, shown.mac, shown.requests) == ("hold", B, ("r1", "r2"))
    assert (shown.tokens, shown.since) == (10, 1.0)
    assert seek == Seek(0, frozenset())
    shown, rebuild = machine.found(OTHER, 1.1)
    assert isinstance(shown, Recovery)
    assert (shown.state, shown.plan, rebuild) == ("rebuild", OTHER, Rebuild(OTHER))
    (ready,) = told(machine.ready(ASKED, 5.0))
    assert (ready.state, ready.total, ready.eta_s) == ("rebuild", 160, None)
    assert machine.read("r1", 40, 5.0 + SHOW_EVERY_S / 2) == [], "not each chunk is shown"
    (read,) = told(machine.read("r1", 80, 7.0))
    assert (read.done, read.total, read.eta_s) == (80, 160, 2.0)
    assert machine.wrote("r2", 8.0) == [], "r1 is read still"
    (over,) = told(machine.wrote("r1", 9.0))
    assert (over.state, over.text) == ("running", "mac2 dropped out; continued on mac0 + mac1 after 8.0 s")
    assert machine.wrote("r1", 9.1) == []


def test_what_is_copied_before_is_said_until_it_is_there() -> None:
    machine = Recovering(PLAN)
    lose(machine)
    (shown,) = told(machine.found(OTHER, 0.1, "1.2 GB (layers 4–7) to mac1, about 40 s"))
    assert shown.text.endswith(
        "Copying first: 1.2 GB (layers 4–7) to mac1, about 40 s. Reading 160 tokens again on 2 Macs."
    )
    for at in range(1, 3):
        machine.progressed(at * LOAD_S)
        assert machine.tick(ASKED, at * LOAD_S + 1.0) == [], "as long as something comes it is waited for"
    (ready,) = told(machine.ready(ASKED, 3 * LOAD_S))
    assert "Copying" not in ready.text


def test_an_answer_that_ends_while_it_is_read_again_is_not_waited_for() -> None:
    machine = rebuilding()
    machine.ready(ASKED, 1.0)
    machine.wrote("r1", 2.0)
    (over,) = told(machine.tick({"r1": (100, 11)}, 2.5))
    assert over.state == "running"


def test_where_nobody_asks_it_runs_as_soon_as_it_is_loaded() -> None:
    assert [shown.state for shown in told(rebuilding().ready({}, 3.0))] == ["running"]


def test_a_broken_link_is_made_anew() -> None:
    machine = Recovering(PLAN)
    (shown,) = told(machine.broke(B, GONE, 1.0))
    assert (shown.state, shown.mac, shown.choices) == ("resume", B, ())
    assert machine.broke(C, GONE, 1.1) == []
    (shown,) = told(machine.ready(ASKED, 2.0))
    assert (shown.state, shown.text) == ("running", "mac1 is connected again; continued after 1.0 s")


def test_a_mac_that_is_back_with_what_it_held_is_only_linked() -> None:
    machine = waiting()
    shown, relink = machine.linked(B, 4.0)
    assert isinstance(shown, Recovery)
    assert (shown.state, relink) == ("resume", RELINK)
    assert [shown.state for shown in told(machine.ready(ASKED, 5.0))] == ["running"]


def test_a_mac_that_is_back_empty_is_planned_for() -> None:
    machine = waiting()
    machine.linked(B, 4.0)
    assert done(machine.lost(B, DIED, ASKED, 4.1)) == []
    assert done(machine.tick(ASKED, 4.1 + BACK_OFF_S[2])) == [Seek(0, frozenset())]


def test_what_was_replanned_once_is_not_linked_as_it_was() -> None:
    machine = rebuilding()
    lose(machine, B, now=1.0)
    machine.tick(ASKED, 2.0)
    machine.unfit(UNFIT, 2.0)
    assert done(machine.linked(B, 3.0)) == [Seek(0, frozenset())]


def test_links_that_are_not_made_anew_in_time_are_a_loss() -> None:
    machine = Recovering(PLAN)
    machine.broke(B, GONE, 0.0)
    assert machine.tick(ASKED, RELINK_S) == []
    assert done(machine.tick(ASKED, RELINK_S + 0.1)) == [Seek(0, frozenset())]


def test_a_load_that_does_nothing_is_a_loss_and_one_that_moves_is_none() -> None:
    machine = rebuilding()
    machine.progressed(LOAD_S - 1)
    assert machine.tick(ASKED, LOAD_S + 1) == []
    assert [shown.state for shown in told(machine.tick(ASKED, 2 * LOAD_S))] == ["hold"]


def test_a_link_that_only_broke_is_waited_for_a_moment() -> None:
    machine = Recovering(PLAN)
    machine.gone(B)
    assert done(machine.lost(B, GONE, ASKED, 1.0)) == []
    assert machine.tick(ASKED, 0.9 + BACK_S) == []
    assert done(machine.linked(B, 1.95)) == [RELINK]
    machine = Recovering(PLAN)
    machine.gone(B)
    machine.lost(B, GONE, ASKED, 1.0)
    assert done(machine.tick(ASKED, 1.0 + BACK_S)) == [Seek(0, frozenset())]


def test_nothing_is_planned_over_a_mac_that_may_be_dead() -> None:
    machine = Recovering(PLAN)
    machine.suspected(C, 0.0)
    assert done(lose(machine, now=0.5)) == []
    assert machine.tick(ASKED, 1.0) == []
    assert done(machine.linked(C, 1.5)) == [Seek(0, frozenset())]


def test_a_mac_that_is_only_slow_holds_nothing_up_for_ever() -> None:
    machine = Recovering(PLAN)
    machine.suspected(C, 0.0)
    lose(machine, now=0.5)
    assert machine.tick(ASKED, 0.4 + 2 * DEAD_S) == []
    assert done(machine.tick(ASKED, 0.6 + 2 * DEAD_S)) == [Seek(0, frozenset())]


def test_it_seeks_again_and_again_while_it_waits_but_not_all_the_time() -> None:
    machine = waiting()
    for turn in range(1, 4):
        assert machine.tick(ASKED, turn * SEEK_EVERY_S - 0.1) == []
        assert done(machine.tick(ASKED, turn * SEEK_EVERY_S)) == [Seek(0, frozenset())]
        assert machine.tick(ASKED, turn * SEEK_EVERY_S) == []
        machine.unfit(UNFIT, turn * SEEK_EVERY_S)


def test_every_attempt_waits_longer_and_the_last_one_parks() -> None:
    machine, now = Recovering(PLAN), 0.0
    for attempt in range(1, MOST_ATTEMPTS + 1):
        machine.lost(B, DIED, ASKED, now)
        at = now + BACK_OFF_S[attempt]
        if BACK_OFF_S[attempt]:
            assert machine.state == "hold"
            assert machine.tick(ASKED, at - 0.01) == []
            machine.tick(ASKED, at)
        assert machine.state == "replan"
        machine.found(PLAN, at)
        now = at + 1.0
    shown, end = machine.lost(B, DIED, ASKED, now)
    assert isinstance(shown, Recovery)
    assert isinstance(end, End)
    assert (machine.state, shown.state, end.problem, end.shown.kind) == ("parked", "parked", DIED, "Parked")


def test_a_token_forgives_earlier_attempts_and_strikes() -> None:
    machine = Recovering(PLAN)
    for turn in range(3 * MOST_ATTEMPTS):
        assert done(machine.lost(B, DIED, ASKED, float(turn))) == [Seek(0, frozenset())]
        machine.found(PLAN, float(turn))
        machine.ready(ASKED, float(turn))
        machine.wrote("r1", float(turn))
        machine.wrote("r2", float(turn))
        assert machine.state == "running"


def test_a_mac_whose_worker_dies_again_and_again_is_left_out_until_nothing_else_fits() -> None:
    machine, sought = Recovering(PLAN), list[Action]()
    for turn in range(MOST_STRIKES):
        sought += done(machine.lost(B, DIED, ASKED, 10.0 * turn)) + done(machine.tick(ASKED, 10.0 * turn + 5))
        machine.found(PLAN, 10.0 * turn + 6)
    assert sought == [Seek(0, frozenset())] * (MOST_STRIKES - 1) + [Seek(0, frozenset({B}))]
    machine = Recovering(PLAN)
    for turn in range(MOST_STRIKES - 1):
        machine.lost(B, DIED, ASKED, 10.0 * turn)
        machine.tick(ASKED, 10.0 * turn + 5)
        machine.found(PLAN, 10.0 * turn + 6)
    machine.lost(B, DIED, ASKED, 50.0)
    machine.tick(ASKED, 55.0)
    machine.unfit(UNFIT, 55.0)
    assert done(machine.tick(ASKED, 61.0)) == [Seek(0, frozenset())], "a Mac that failed often is better than none"


def test_a_mac_that_cannot_hold_its_layers_is_not_asked_again() -> None:
    machine = Recovering(PLAN)
    assert done(machine.lost(B, BROKEN, ASKED, 0.0)) == [Seek(0, frozenset({B}))]
    machine.unfit(UNFIT, 0.0)
    assert done(machine.tick(ASKED, SEEK_EVERY_S)) == [Seek(0, frozenset({B}))]


def test_the_head_is_always_asked() -> None:
    assert done(Recovering(PLAN).lost(A, BROKEN, ASKED, 0.0)) == [Seek(0, frozenset())]
    assert done(Recovering(PLAN).lost("", BROKEN, ASKED, 0.0)) == [Seek(0, frozenset())]


@pytest.mark.parametrize("error", [NotPaired, RosterFork, RosterError, TrustError])
@pytest.mark.parametrize("make", [lambda: Recovering(PLAN), rebuilding, waiting], ids=["running", "rebuild", "wait"])
def test_without_trust_nothing_goes_on_by_itself(error: type[MaclusterError], make: Callable[[], Recovering]) -> None:
    machine, problem = make(), error("mac1 was revoked.").problem
    shown, end = machine.lost(B, problem, ASKED, 1.0)
    assert isinstance(shown, Recovery)
    assert (shown.state, end) == ("running", End(problem, problem))


def test_an_hour_in_vain_is_parked() -> None:
    machine = waiting()
    machine.tick(ASKED, WAIT_S - 1)
    machine.unfit(UNFIT, WAIT_S - 1)
    assert [type(action) for action in machine.tick(ASKED, WAIT_S + 1)] == [Recovery, End]
    assert machine.state == "parked"


@pytest.mark.parametrize(
    ("make", "choices"),
    [
        pytest.param(lambda: Recovering(PLAN), (), id="running"),
        pytest.param(rebuilding, ("replan", "wait", "save", "stop"), id="rebuild"),
        pytest.param(waiting, ("wait", "save", "stop"), id="nothing-fits"),
    ],
)
def test_only_what_is_to_be_chosen_is_heeded(make: Callable[[], Recovering], choices: tuple[str, ...]) -> None:
    every: tuple[RecoveryChoice, ...] = ("replan", "wait", "save", "stop")
    for choice in every:
        machine = make()
        actions = machine.chose(choice, ASKED, 1.0)
        assert (actions == []) == (choice not in choices) or choice == "replan"


def test_whoever_would_rather_wait_gets_no_other_plan_until_they_say_so() -> None:
    machine = rebuilding()
    free, shown = machine.chose("wait", ASKED, 1.0)
    assert isinstance(shown, Recovery)
    assert (free, shown.state) == (Free(), "wait")
    assert shown.choices == ("wait", "replan", "save", "stop")
    assert done(machine.tick(ASKED, SEEK_EVERY_S + 1)) == [Seek(0, frozenset())]
    (shown,) = machine.found(plan_of(1, plan_gen=300), SEEK_EVERY_S + 1)
    assert isinstance(shown, Recovery)
    assert (shown.state, shown.plan) == ("wait", plan_of(1, plan_gen=300)), "it says what could be"
    assert done(machine.chose("replan", ASKED, 7.0)) == [Seek(0, frozenset())]
    assert done(machine.found(OTHER, 7.1)) == [Rebuild(OTHER)]


def test_whoever_waits_goes_on_when_the_mac_is_back() -> None:
    machine = rebuilding()
    machine.chose("wait", ASKED, 1.0)
    assert Seek(0, frozenset()) in machine.linked(B, 2.0)
    assert done(machine.found(PLAN, 2.1)) == [Rebuild(PLAN)]


@pytest.mark.parametrize(
    ("make", "choice", "actions", "state"),
    [
        pytest.param(rebuilding, "save", [End], "parked", id="save-rebuild"),
        pytest.param(waiting, "save", [End], "parked", id="save-wait"),
        pytest.param(waiting, "stop", [CancelAnswers, End], "running", id="stop-wait"),
        pytest.param(rebuilding, "stop", [CancelAnswers], None, id="stop-rebuild"),
    ],
)
def test_save_keeps_the_answers_and_stop_ends_them(
    make: Callable[[], Recovering], choice: RecoveryChoice, actions: list[type], state: str | None
) -> None:
    machine = make()
    assert [type(action) for action in done(machine.chose(choice, ASKED, 1.0))] == actions
    assert state is None or machine.state == state


@pytest.mark.parametrize("make", [lambda: Recovering(PLAN), rebuilding, waiting], ids=["running", "rebuild", "wait"])
def test_a_split_that_comes_late_is_not_used(make: Callable[[], Recovering]) -> None:
    machine = make()
    state = machine.state
    assert machine.found(OTHER, 1.0) == []
    assert machine.unfit(UNFIT, 1.0) == []
    assert machine.state == state


@pytest.mark.parametrize("make", [lambda: Recovering(PLAN), waiting], ids=["running", "wait"])
def test_a_ring_that_nobody_waits_for_recovers_nothing(make: Callable[[], Recovering]) -> None:
    machine = make()
    state = machine.state
    assert machine.ready(ASKED, 1.0) == []
    assert machine.state == state


def ticked(machine: Recovering, begin: float, end: float) -> list[Action]:
    """Tick twice a second from `begin` to `end`."""
    return [a for n in range(int(2 * (end - begin)) + 1) for a in machine.tick(ASKED, begin + n / 2)]


def test_a_ring_on_which_nothing_moves_is_stuck_and_then_lost() -> None:
    machine = Recovering(PLAN)
    machine.tick(ASKED, 0.0)
    machine.wrote("r1", 0.5)
    machine.wrote("r1", 1.0)
    assert ticked(machine, 1.0, 5.5) == []
    assert [shown.state for shown in told(ticked(machine, 6.0, 30.5))] == ["stuck"]
    assert done(ticked(machine, 31.0, 31.5)) == [Seek(0, frozenset())]


def test_a_ring_that_moves_again_is_stuck_no_more() -> None:
    machine = Recovering(PLAN)
    machine.tick(ASKED, 0.0)
    machine.wrote("r1", 0.5)
    assert [shown.state for shown in told(ticked(machine, 1.0, 9.0))] == ["stuck"]
    assert [shown.state for shown in told(machine.wrote("r1", 9.2))] == ["running"]


def test_a_mac_that_slept_does_not_call_the_ring_stuck() -> None:
    machine = Recovering(PLAN)
    machine.tick(ASKED, 0.0)
    machine.wrote("r1", 0.5)
    machine.wrote("r1", 1.0)
    assert ticked(machine, 1.0, 2.0) + ticked(machine, 100.0, 104.0) == []


def test_a_ring_without_work_is_never_stuck() -> None:
    machine = Recovering(PLAN)
    machine.tick(ASKED, 0.0)
    machine.wrote("r1", 1.0)
    assert machine.tick({}, 2.0) == machine.tick({}, 500.0) == machine.tick(ASKED, 501.0) == []


MACS = st.sampled_from([A, B, C, "", mac_id(7)])
PROBLEMS: st.SearchStrategy[Problem] = st.sampled_from([GONE, DIED, BROKEN])
CALLS: dict[str, st.SearchStrategy[tuple[Any, ...]]] = {
    "suspected": st.tuples(MACS),
    "linked": st.tuples(MACS),
    "broke": st.tuples(MACS, PROBLEMS),
    "lost": st.tuples(MACS, PROBLEMS, st.just(ASKED)),
    "found": st.tuples(st.sampled_from([PLAN, OTHER])),
    "unfit": st.just((UNFIT,)),
    "ready": st.tuples(st.sampled_from([ASKED, {}])),
    "read": st.tuples(st.sampled_from(["r1", "r2", "r3"]), st.integers(0, 100)),
    "wrote": st.tuples(st.sampled_from(["r1", "r2", "r3"])),
    "chose": st.tuples(st.sampled_from(["replan", "wait", "save", "stop"]), st.just(ASKED)),
    "tick": st.just((ASKED,)),
}


def test_only_the_answer_to_the_last_search_counts() -> None:
    machine = Recovering(PLAN)
    lose(machine, B)
    assert done(lose(machine, C, now=0.1)) == [Seek(0, frozenset())]
    assert machine.found(OTHER, 0.2) == [], "it was sought before mac2 was lost"
    assert done(machine.found(plan_of(1, plan_gen=300), 0.3)) == [Rebuild(plan_of(1, plan_gen=300))]


@settings(max_examples=150 * SEARCH, deadline=None)
@given(st.lists(st.sampled_from(sorted(CALLS)), max_size=30), st.data())
def test_whatever_comes_each_state_is_shown_and_each_order_fits_its_state(
    calls: list[str], data: st.DataObject
) -> None:
    machine, now, shown, sought = Recovering(PLAN), 0.0, "running", 0
    for call in calls:
        if call in ("found", "unfit"):
            if not sought:
                continue
            sought -= 1
        now += data.draw(st.sampled_from([0.0, 0.1, 1.0, 10.0]))
        if call == "suspected" and data.draw(st.booleans()):
            machine.gone(B)
        plan = machine.plan
        actions: list[Action] = getattr(machine, call)(*data.draw(CALLS[call]), now)
        for action in actions:
            match action:
                case Recovery() as recovery:
                    shown = recovery.state
                    assert recovery.done <= recovery.total or not recovery.total
                case Seek():
                    sought += 1
                    assert machine.state == "replan"
                case Rebuild():
                    assert machine.state == "rebuild"
                case str():
                    assert machine.state == "resume"
        if machine.state == "parked":
            assert any(isinstance(action, End) for action in actions)
            return
        assert shown == machine.state or machine.state == "replan", "what is shown is not how it is"
        assert isinstance(plan, Plan)
