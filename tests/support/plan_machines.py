"""A plan machine with Macs that only say how their stages are."""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec.structs import replace

from core.errors import Problem
from core.events import Plan, StageState
from core.node.peers.stage_state import HeldStage, PlanId, StagePhase, files_hash
from core.node.plans.orders import Link, Order
from core.node.plans.plan_machine import TRANSITIONS, Answers, PlanMachine
from tests.support.plans import FILES, PROOF, held, mac_id

_T = TypeVar("_T")
SAME = files_hash(FILES)


def of_kind(given: list[Order], kind: type[_T]) -> list[_T]:
    return [order for order in given if isinstance(order, kind)]


def shown_stages(given: list[Order]) -> list[StageState]:
    return of_kind(given, StageState)


class CheckedMachine(PlanMachine):
    """Each of its transitions is in the table, and only the last search is answered."""

    def found(self, search: int, plan: Plan, plan_id: PlanId, copied: str = "") -> None:
        super().found(search, plan, plan_id, copied)
        assert not self._result or search == self._search, "a split is loaded while a newer one is sought"

    def __setattr__(self, name: str, value: Any) -> None:
        before = self.__dict__.get(name, value)
        if name == "phase" and before != value:
            assert any(before in froms and value in to for froms, to, _ in TRANSITIONS), f"{before} → {value}"
        super().__setattr__(name, value)


class Macs:
    """Says for the Macs of a machine how their stages are; `now` is the time of each step."""

    def __init__(self, plan: Plan, *, recovers: bool = False, now: float = 0.0) -> None:
        self.now, self.numbers = now, 1
        self.answers: Answers = {}
        self.machine = CheckedMachine(plan, PlanId(mac_id(0), 1), now, recovers=recovers)
        self.stages: dict[str, HeldStage] = {}

    def new_id(self) -> PlanId:
        self.numbers += 1
        return PlanId(mac_id(0), self.numbers)

    def step(self) -> list[Order]:
        return self.machine.step(self.now, self.answers)

    def brought(self) -> list[Order]:
        self.machine.brought(self.now)
        return self.step()

    def say(self, n: int, **changes: object) -> list[Order]:
        """Mac n's stage changes so, and its head hears it."""
        stage = self.stages.get(mac_id(n))
        if stage is None or stage.plan != self.machine.id:
            stage = HeldStage(plan=self.machine.id)
        self.stages[mac_id(n)] = stage = replace(stage, **changes)
        self.machine.heard(mac_id(n), stage, self.now)
        return self.step()

    def prepared(self, n: int) -> list[Order]:
        return self.say(n, port=7000 + n)

    def loaded(self, n: int, **changes: object) -> list[Order]:
        return self.say(n, phase="loaded", loaded=held(n, **changes))

    def checked(self, n: int, files: str = SAME) -> list[Order]:
        return self.say(n, files=files)

    def link(self, n: int, phase: StagePhase, gen: int | None = None, problem: Problem | None = None) -> list[Order]:
        gen = self.machine.plan.plan_gen if gen is None else gen
        return self.say(n, phase=phase, link_gen=gen, problem=problem)

    def lose(self, n: int, problem: Problem) -> list[Order]:
        self.machine.lost(mac_id(n), problem)
        return self.step()

    def proved(self, gen: int | None = None) -> list[Order]:
        self.machine.proved(self.machine.plan.plan_gen if gen is None else gen, PROOF)
        return self.step()

    def load_all(self) -> list[Order]:
        given = self.brought()
        for n in range(len(self.machine.plan.stages)):
            given += self.prepared(n) + self.loaded(n) + self.checked(n)
        return given

    def link_all(self) -> list[Order]:
        return [order for n in range(len(self.machine.plan.stages)) for order in self.link(n, "linked")]


def links(given: list[Order]) -> list[Link]:
    return of_kind(given, Link)


def loading(plan: Plan) -> Macs:
    macs = Macs(plan)
    macs.brought()
    return macs


def loaded_ring(plan: Plan) -> Macs:
    macs = Macs(plan)
    macs.load_all()
    return macs


def ready_ring(plan: Plan) -> Macs:
    macs = loaded_ring(plan)
    macs.link_all()
    macs.proved()
    assert macs.machine.phase == "running"
    return macs
