from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from core.errors import LinkLost
from core.events import Plan, Stage
from core.node.formation import MAX_RELINKS, Action, Connect, Formation, GiveUp, Ready, Show

PROBLEM = LinkLost("The cable is out.", "Plug it in.").problem
GEN = 100

_T = TypeVar("_T")


def mac_id(number: int) -> str:
    return "abcdefgh"[number] * 26


def plan_of(count: int, plan_gen: int = GEN) -> Plan:
    stages = tuple(
        Stage(
            device_id=mac_id(n),
            peer=f"mac{n}",
            start=2 * n,
            stop=2 * n + 2,
            weight_bytes=1000 + n,
            kv_bytes=10,
            budget_bytes=5000,
        )
        for n in range(count)
    )
    return Plan(
        plan_gen=plan_gen,
        model="toy",
        fingerprint="f" * 64,
        topology="single" if count == 1 else "private",
        layers=2 * count,
        context=64,
        chunk=8,
        stages=stages,
        output=mac_id(0),
    )


def of_kind(actions: list[Action], kind: type[_T]) -> list[_T]:
    return [a for a in actions if isinstance(a, kind)]


def loaded_ring(count: int) -> Formation:
    formation = Formation(plan_of(count))
    for n in range(count):
        formation.prepared(mac_id(n), 7000 + n)
        formation.loaded(mac_id(n), 1000 + n)
    return formation


def ready_ring(count: int) -> Formation:
    formation = loaded_ring(count)
    for n in range(count):
        formation.linked(mac_id(n), GEN)
    assert formation.phase == "ready"
    return formation


@given(st.integers(1, 4), st.data())
def test_any_order_of_reports_leads_to_exactly_one_ready(count: int, data: st.DataObject) -> None:
    formation = Formation(plan_of(count))
    calls: list[Callable[[], list[Action]]] = []
    for n in range(count):
        calls += [
            partial(formation.prepared, mac_id(n), 7000 + n),
            partial(formation.loading, mac_id(n), 5, 1000),
            partial(formation.loaded, mac_id(n), 1000 + n),
        ]
    before = [a for call in data.draw(st.permutations(calls)) for a in call()]
    connects = of_kind(before, Connect)
    after: list[Action] = []
    if count > 1:
        assert [c.ports for c in connects] == [tuple(7000 + n for n in range(count))]
        gens = [GEN] * count + data.draw(st.lists(st.sampled_from([GEN - 1, GEN + 1, 0]), max_size=3))
        order = data.draw(st.permutations([(n % count, gen) for n, gen in enumerate(gens)]))
        after = [a for n, gen in order for a in formation.linked(mac_id(n), gen)]
    else:
        assert not connects, "a plan on one Mac has no links"
    assert of_kind(before + after, Ready) == [Ready(formation.plan)]
    if count > 1:
        last = {a.state.device_id: a.state for a in before + after if isinstance(a, Show)}
        assert {s.status for s in last.values()} == {"ready"}
        assert [last[mac_id(n)].weight_bytes for n in range(count)] == [1000 + n for n in range(count)]


def test_a_broken_link_is_made_anew_three_times_in_a_row_and_then_given_up() -> None:
    formation = ready_ring(3)
    for turn in range(1, MAX_RELINKS + 1):
        (again,) = of_kind(formation.broken(mac_id(turn % 3), GEN + turn - 1, PROBLEM), Connect)
        assert again.plan.plan_gen == GEN + turn
        assert formation.broken(mac_id(0), GEN + turn - 1, PROBLEM) == [], "one report a generation counts"
    actions = formation.broken(mac_id(2), GEN + MAX_RELINKS, PROBLEM)
    assert actions == [GiveUp(PROBLEM)]
    assert formation.broken(mac_id(2), GEN + MAX_RELINKS, PROBLEM) == []
    assert formation.lost(mac_id(2), PROBLEM) == []


def test_an_answer_that_went_through_forgives_earlier_breaks() -> None:
    formation = ready_ring(2)
    for turn in range(3 * MAX_RELINKS):
        assert of_kind(formation.broken(mac_id(1), GEN + turn, PROBLEM), Connect)
        for n in range(2):
            formation.linked(mac_id(n), GEN + turn + 1)
        assert formation.phase == "ready"
        formation.served()


@pytest.mark.parametrize("make", [lambda: Formation(plan_of(2)), lambda: loaded_ring(2), lambda: ready_ring(2)])
def test_a_lost_stage_ends_the_plan_once_in_every_phase(make: Callable[[], Formation]) -> None:
    formation = make()
    assert formation.lost(mac_id(7), PROBLEM) == [], "a Mac outside the plan is none of its business"
    shown, end = formation.lost(mac_id(1), PROBLEM)
    assert isinstance(shown, Show)
    assert shown.state.status == "lost"
    assert end == GiveUp(PROBLEM)
    assert formation.lost(mac_id(0), PROBLEM) == []
    assert not of_kind(formation.prepared(mac_id(0), 1) + formation.loaded(mac_id(0), 1), Connect)
    assert formation.linked(mac_id(0), GEN) == []


def test_a_break_before_links_were_asked_for_counts_for_nothing() -> None:
    formation = Formation(plan_of(2))
    assert formation.broken(mac_id(1), GEN, PROBLEM) == []
    assert formation.linked(mac_id(1), GEN) == []


class AnyHistory(RuleBasedStateMachine):
    """Every report in every order, beside a model that only counts."""

    who = st.integers(0, 3)

    @initialize(count=st.integers(1, 4))
    def begin(self, count: int) -> None:
        self.count = count
        self.formation = Formation(plan_of(count))
        self.listening: set[str] = set()
        self.holding: set[str] = set()
        self.linked: set[str] = set()
        self.gen: int | None = None
        self.is_ready = self.is_over = False
        self.breaks = 0

    def everyone(self, found: set[str]) -> bool:
        return found >= {mac_id(n) for n in range(self.count)}

    def take(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Connect(plan=plan, ports=ports):
                    assert not self.is_over
                    assert self.count > 1
                    assert self.everyone(self.listening)
                    assert self.everyone(self.holding)
                    assert len(ports) == self.count
                    assert plan.plan_gen == (GEN if self.gen is None else self.gen + 1)
                    self.gen, self.linked, self.is_ready = plan.plan_gen, set(), False
                case Ready():
                    assert not self.is_ready
                    assert not self.is_over
                    assert self.everyone(self.holding)
                    assert self.count == 1 or self.everyone(self.linked)
                    self.is_ready = True
                case GiveUp():
                    assert not self.is_over
                    self.is_over, self.is_ready = True, False
                case Show():
                    pass
        assert self.formation.phase == (
            "failed" if self.is_over else "ready" if self.is_ready else "linking" if self.gen else "loading"
        )

    @rule(who=who)
    def prepare(self, who: int) -> None:
        self.listening.add(mac_id(who % self.count))
        self.take(self.formation.prepared(mac_id(who % self.count), 7000 + who))

    @rule(who=who)
    def load(self, who: int) -> None:
        self.holding.add(mac_id(who % self.count))
        self.take(self.formation.loaded(mac_id(who % self.count), 1))

    @precondition(lambda self: self.gen is not None)
    @rule(who=who, behind=st.sampled_from([0, 0, 0, 1, -1]))
    def link(self, who: int, behind: int) -> None:
        assert self.gen is not None
        fresh = behind == 0 and not self.is_ready and not self.is_over
        if fresh:
            self.linked.add(mac_id(who % self.count))
        actions = self.formation.linked(mac_id(who % self.count), self.gen - behind)
        assert bool(actions) == fresh
        self.take(actions)
        assert self.is_over or self.is_ready == self.everyone(self.linked)

    @precondition(lambda self: self.gen is not None)
    @rule(who=who, behind=st.sampled_from([0, 0, 1, -1]))
    def break_(self, who: int, behind: int) -> None:
        assert self.gen is not None
        counts = behind == 0 and not self.is_over
        gen, self.breaks = self.gen, self.breaks + counts
        actions = self.formation.broken(mac_id(who % self.count), self.gen - behind, PROBLEM)
        self.take(actions)
        assert self.is_over or self.gen == gen + counts
        assert not counts or self.is_over == (self.breaks > MAX_RELINKS)

    @rule()
    def serve(self) -> None:
        if self.is_ready:
            self.breaks = 0
            self.formation.served()

    @rule(who=st.integers(0, 7))
    def lose(self, who: int) -> None:
        ends = who < self.count and not self.is_over
        self.take(self.formation.lost(mac_id(who), PROBLEM))
        assert self.is_over or not ends


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
