"""Every report about a plan in every order, compared with a model that only counts."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from core.node.ring.plan_lifecycle import (
    MAX_RELINKS,
    Action,
    ConnectRing,
    GiveUp,
    PlanLifecycle,
    ProveRing,
    Ready,
    ShowStage,
)
from tests.support.plans import FILES, GEN, PROBLEM, PROOF, held, mac_id, plan_of
from tests.support.search import SEARCH


class AnyHistory(RuleBasedStateMachine):
    """Sends every report in every order, and compares with a model that only counts."""

    who = st.integers(0, 3)

    @initialize(count=st.integers(1, 4))
    def begin(self, count: int) -> None:
        self.count = count
        self.lifecycle = PlanLifecycle(plan_of(count))
        self.listening: set[str] = set()
        self.same: set[str] = set()
        self.holding: set[str] = set()
        self.linked: set[str] = set()
        self.gen: int | None = None
        self.is_ready = self.is_over = self.is_proving = self.is_proved = False
        self.breaks = 0

    def everyone(self, found: set[str]) -> bool:
        return found >= {mac_id(n) for n in range(self.count)}

    def take(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case ConnectRing(plan=plan, ports=ports):
                    assert not self.is_over
                    assert self.count > 1
                    assert self.everyone(self.listening)
                    assert self.everyone(self.holding)
                    assert self.everyone(self.same)
                    assert len(ports) == self.count
                    assert plan.plan_gen == (GEN if self.gen is None else self.gen + 1)
                    self.gen, self.linked, self.is_ready, self.is_proving = plan.plan_gen, set(), False, False
                case ProveRing(plan=plan):
                    assert not self.is_proved
                    assert not self.is_over
                    assert self.everyone(self.holding)
                    assert self.count == 1 or self.everyone(self.linked)
                    self.gen, self.is_proving = plan.plan_gen, True
                case Ready():
                    assert not self.is_ready
                    assert not self.is_over
                    assert self.is_proved
                    assert self.count == 1 or self.everyone(self.linked)
                    self.is_ready, self.is_proving = True, False
                case GiveUp():
                    assert not self.is_over
                    self.is_over, self.is_ready, self.is_proving = True, False, False
                case ShowStage():
                    pass
        assert self.lifecycle.phase == (
            "failed"
            if self.is_over
            else "ready"
            if self.is_ready
            else "proving"
            if self.is_proving
            else "linking"
            if self.gen
            else "loading"
        )

    @rule(who=who)
    def prepare(self, who: int) -> None:
        self.listening.add(mac_id(who % self.count))
        self.take(self.lifecycle.prepared(mac_id(who % self.count), 7000 + who))

    @rule(who=who)
    def load(self, who: int) -> None:
        self.holding.add(mac_id(who % self.count))
        self.take(self.lifecycle.loaded(mac_id(who % self.count), held(who % self.count)))

    @rule(who=who)
    def check(self, who: int) -> None:
        self.same.add(mac_id(who % self.count))
        self.take(self.lifecycle.checked(mac_id(who % self.count), FILES))

    @precondition(lambda self: self.gen is not None)
    @rule(behind=st.sampled_from([0, 0, 1, -1]), well=st.sampled_from([True, True, False]))
    def prove(self, behind: int, well: bool) -> None:
        assert self.gen is not None
        counts = behind == 0 and self.is_proving
        self.is_proved |= counts and well
        gen = self.gen - behind
        actions = self.lifecycle.proved(gen, PROOF) if well else self.lifecycle.disproved(gen, PROBLEM)
        assert bool(actions) == counts
        self.take(actions)

    @precondition(lambda self: self.gen is not None)
    @rule(who=who, behind=st.sampled_from([0, 0, 0, 1, -1]))
    def link(self, who: int, behind: int) -> None:
        assert self.gen is not None
        fresh = behind == 0 and not self.is_ready and not self.is_over and not self.is_proving
        if fresh:
            self.linked.add(mac_id(who % self.count))
        actions = self.lifecycle.linked(mac_id(who % self.count), self.gen - behind)
        assert bool(actions) == fresh
        self.take(actions)
        whole = self.count == 1 or self.everyone(self.linked)
        assert self.is_over or (self.is_ready or self.is_proving) == whole

    @precondition(lambda self: self.gen is not None and self.count > 1)
    @rule(who=who, behind=st.sampled_from([0, 0, 1, -1]))
    def break_(self, who: int, behind: int) -> None:
        assert self.gen is not None
        counts = behind == 0 and not self.is_over
        gen, self.breaks = self.gen, self.breaks + counts
        actions = self.lifecycle.broken(mac_id(who % self.count), self.gen - behind, PROBLEM)
        self.take(actions)
        assert self.is_over or self.gen == gen + counts
        assert not counts or self.is_over == (self.breaks > MAX_RELINKS)

    @rule()
    def serve(self) -> None:
        if self.is_ready:
            self.breaks = 0
            self.lifecycle.served()

    @rule(who=st.integers(0, 7))
    def lose(self, who: int) -> None:
        ends = who < self.count and not self.is_over
        self.take(self.lifecycle.lost(mac_id(who), PROBLEM))
        assert self.is_over or not ends


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(max_examples=60 * SEARCH, stateful_step_count=30, deadline=None)
