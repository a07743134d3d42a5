"""From a plan to a ring that is ready, and back when something breaks: a pure state machine.

Reports of stages go in, actions come out; no clock, no I/O. States: loading (stages read their layers) → linking (every
stage has its layers, links are being made) → ready; a broken link leads back to linking under a new plan generation, so
that a frame of the old links can never be taken for a new one; a lost stage leads to failed.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from core.errors import Problem
from core.events import Plan, StageState

MAX_RELINKS = 3

Phase = Literal["loading", "linking", "ready", "failed"]


class Connect(msgspec.Struct, frozen=True):
    """Tell every stage to link to its neighbours under this plan; `ports` are the data ports, in ring order."""

    plan: Plan
    ports: tuple[int, ...]


class Show(msgspec.Struct, frozen=True):
    """Publish the state of a stage."""

    state: StageState


class Ready(msgspec.Struct, frozen=True):
    """The ring is sealed and every layer is owned."""

    plan: Plan


class GiveUp(msgspec.Struct, frozen=True):
    """The plan cannot run: free what was loaded and say why."""

    problem: Problem


Action = Connect | Show | Ready | GiveUp


class Formation:
    """What is known of every stage of one plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.phase: Phase = "loading"
        self._ports: dict[str, int] = {}
        self._loaded: dict[str, int] = {}
        self._linked: set[str] = set()
        self._relinks = 0

    def prepared(self, device_id: str, port: int) -> list[Action]:
        """The worker of a stage listens for data."""
        self._ports[device_id] = port
        return self._advance()

    def loading(self, device_id: str, done_bytes: int, total_bytes: int) -> list[Action]:
        """A stage reads its layers."""
        return [self._show(device_id, "loading", done_bytes=done_bytes, total_bytes=total_bytes)]

    def loaded(self, device_id: str, weight_bytes: int) -> list[Action]:
        """A stage holds its layers."""
        self._loaded[device_id] = weight_bytes
        return [self._show(device_id, "linking"), *self._advance()]

    def linked(self, device_id: str, plan_gen: int) -> list[Action]:
        """A stage has both its links under `plan_gen`."""
        if plan_gen != self.plan.plan_gen or self.phase != "linking":
            return []
        self._linked.add(device_id)
        return [self._show(device_id, "ready"), *self._advance()]

    def broken(self, device_id: str, plan_gen: int, problem: Problem) -> list[Action]:
        """A link of a stage is gone, its layers are not: link anew, a few times."""
        if plan_gen != self.plan.plan_gen or self.phase not in ("linking", "ready"):
            return []
        self._relinks += 1
        if self._relinks > MAX_RELINKS:
            return self._fail(problem)
        return [self._show(device_id, "broken", detail=problem.what), *self._connect(self.plan.plan_gen + 1)]

    def lost(self, device_id: str, problem: Problem) -> list[Action]:
        """A stage is gone with its layers."""
        if self.phase == "failed" or all(s.device_id != device_id for s in self.plan.stages):
            return []
        return [self._show(device_id, "lost", detail=problem.what), *self._fail(problem)]

    def unprepared(self) -> list[str]:
        """Stages whose worker has not answered yet."""
        return [s.device_id for s in self.plan.stages if s.device_id not in self._ports]

    def served(self) -> None:
        """A request went through: earlier broken links no longer count."""
        self._relinks = 0

    def _advance(self) -> list[Action]:
        everyone = {s.device_id for s in self.plan.stages}
        if self.phase == "loading" and everyone <= self._ports.keys() and everyone <= self._loaded.keys():
            if len(everyone) == 1:
                return [*(self._show(d, "ready") for d in everyone), *self._ready()]
            return self._connect(self.plan.plan_gen)
        if self.phase == "linking" and everyone <= self._linked:
            return self._ready()
        return []

    def _connect(self, plan_gen: int) -> list[Action]:
        self.phase = "linking"
        self.plan = msgspec.structs.replace(self.plan, plan_gen=plan_gen)
        self._linked.clear()
        return [Connect(self.plan, tuple(self._ports[s.device_id] for s in self.plan.stages))]

    def _ready(self) -> list[Action]:
        self.phase = "ready"
        return [Ready(self.plan)]

    def _fail(self, problem: Problem) -> list[Action]:
        self.phase = "failed"
        return [GiveUp(problem)]

    def _show(
        self,
        device_id: str,
        status: Literal["loading", "linking", "ready", "broken", "lost"],
        *,
        done_bytes: int = 0,
        total_bytes: int = 0,
        detail: str = "",
    ) -> Show:
        weight = self._loaded.get(device_id, 0)
        return Show(
            StageState(
                device_id=device_id,
                status=status,
                done_bytes=done_bytes or weight,
                total_bytes=total_bytes or weight,
                weight_bytes=weight,
                detail=detail,
            )
        )
