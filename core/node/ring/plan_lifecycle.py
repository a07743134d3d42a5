"""The states of a plan from loading to ready, and back when something breaks: a pure state machine.

Reports of stages go in, actions come out. States: loading (missing files are copied, stages read their layers and
check their files) → linking → proving (the ring runs a fixed prompt, once) → ready. A broken link leads back to linking
under a new plan generation, so that a frame of an old link is never taken for a new one. A lost stage, a stage with
other layers or files, and a failed proof lead to failed; the stages keep their layers, and once a lost Mac is back, the
ring may be linked again (`resume`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple

import msgspec

from core.errors import Problem
from core.events import Plan, StageState, StageStatus
from core.node.ring.layer_ownership import first_fault, mismatched
from core.worker.messages import Loaded

MAX_RELINKS = 3

Phase = Literal["loading", "linking", "proving", "ready", "failed"]


class ConnectRing(msgspec.Struct, frozen=True):
    """Tell every stage to link to its neighbours."""

    plan: Plan
    ports: tuple[int, ...]  # data ports in ring order


class ShowStage(msgspec.Struct, frozen=True):
    """Publish the state of a stage."""

    state: StageState


class ProveRing(msgspec.Struct, frozen=True):
    """Run the proof: every layer has one owner, every link is sealed."""

    plan: Plan


class Ready(msgspec.Struct, frozen=True):
    """The ring has computed."""

    plan: Plan
    proof: str  # the sentence about the proof


class Broke(msgspec.Struct, frozen=True):
    """A link of that Mac broke, and is being made again."""

    device_id: str
    problem: Problem


class GiveUp(msgspec.Struct, frozen=True):
    """The plan can't run because of that Mac's stage; "" for none in particular."""

    device_id: str
    problem: Problem


Action = ConnectRing | ShowStage | ProveRing | Ready | Broke | GiveUp


class Mismatch(NamedTuple):
    """The Mac whose files differ from the plan's, and how."""

    device_id: str
    problem: Problem


class PlanLifecycle:
    """The state of every stage of one plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.phase: Phase = "loading"
        self.failed_in: Phase | None = None
        self.mismatch: Mismatch | None = None
        self._ports: dict[str, int] = {}
        self._held: dict[str, Loaded] = {}
        self._files: dict[str, Mapping[str, str]] = {}
        self._proof = ""
        self._linked: set[str] = set()
        self._relinks = 0

    def show(
        self, device_id: str, status: StageStatus, *, done_bytes: int = 0, total_bytes: int = 0, detail: str = ""
    ) -> ShowStage:
        held = self._held.get(device_id)
        weight = held.weight_bytes if held else 0
        return ShowStage(
            StageState(
                device_id=device_id,
                status=status,
                done_bytes=done_bytes or weight,
                total_bytes=total_bytes or weight,
                weight_bytes=weight,
                detail=detail,
            )
        )

    def prepared(self, device_id: str, port: int) -> list[Action]:
        self._ports[device_id] = port
        return self._advance()

    def loading(self, device_id: str, done_bytes: int, total_bytes: int) -> list[Action]:
        return [self.show(device_id, "loading", done_bytes=done_bytes, total_bytes=total_bytes)]

    def loaded(self, device_id: str, held: Loaded) -> list[Action]:
        if self.phase != "loading":
            return []
        self._held[device_id] = held
        return [self.show(device_id, "linking"), *self._examine()]

    def checked(self, device_id: str, files: Mapping[str, str]) -> list[Action]:
        if self.phase != "loading":
            return []
        self._files[device_id] = files
        return self._examine()

    def linked(self, device_id: str, plan_gen: int) -> list[Action]:
        if plan_gen != self.plan.plan_gen or self.phase != "linking":
            return []
        self._linked.add(device_id)
        return [self.show(device_id, "ready"), *self._advance()]

    def broken(self, device_id: str, plan_gen: int, problem: Problem) -> list[Action]:
        """A link broke, but the layers are kept: link again, up to `MAX_RELINKS` times."""
        if plan_gen != self.plan.plan_gen or self.phase not in ("linking", "proving", "ready"):
            return []
        self._relinks += 1
        if self._relinks > MAX_RELINKS:
            return self._fail(problem, device_id)
        shown = self.show(device_id, "broken", detail=problem.what)
        return [shown, Broke(device_id, problem), *self._connect(self.plan.plan_gen + 1)]

    def resume(self) -> list[Action]:
        if self.phase != "failed" or not self._proof:
            return []
        self._relinks = 0
        return self._connect(self.plan.plan_gen + 1)

    def proved(self, plan_gen: int, proof: str) -> list[Action]:
        """The proof succeeded; it holds for the layers, whatever links come later."""
        if plan_gen != self.plan.plan_gen or self.phase != "proving":
            return []
        self._proof = proof
        return self._ready()

    def disproved(self, plan_gen: int, problem: Problem) -> list[Action]:
        if plan_gen != self.plan.plan_gen or self.phase != "proving":
            return []
        return self._fail(problem)

    def lost(self, device_id: str, problem: Problem) -> list[Action]:
        if self.phase == "failed" or all(s.device_id != device_id for s in self.plan.stages):
            return []
        if problem.kind == "ModelMismatch":
            self.mismatch = Mismatch(device_id, problem)
        return [self.show(device_id, "lost", detail=problem.what), *self._fail(problem, device_id)]

    def distrusted(self, device_id: str, problem: Problem) -> list[Action]:
        if self.phase == "failed" or all(part.device_id != device_id for part in self.plan.parts):
            return []
        return self.lost(device_id, problem) or self._fail(problem)

    def abandon(self) -> None:
        self.phase = "failed"

    @property
    def computed_by(self) -> str:
        """A sentence that names the Macs and their mlx-lm."""
        held = [(stage.peer, self._held.get(stage.device_id)) for stage in self.plan.stages]
        return f"Computed by {', '.join(f'{mac} (mlx-lm {loaded.mlx_lm})' for mac, loaded in held if loaded)}."

    def is_prepared(self, device_id: str) -> bool:
        return device_id in self._ports

    def unloaded(self) -> list[str]:
        return [s.device_id for s in self.plan.stages if s.device_id not in self._held]

    def served(self) -> None:
        self._relinks = 0

    def _examine(self) -> list[Action]:
        """Fail at the first fault, without waiting for the slowest Mac."""
        problem = first_fault(self.plan, self._held, self._files)
        if problem and (device_id := mismatched(self.plan, self._held, self._files)):
            self.mismatch = Mismatch(device_id, problem)
        return self._fail(problem, self.mismatch.device_id if self.mismatch else "") if problem else self._advance()

    def _advance(self) -> list[Action]:
        alone = len(self.plan.stages) == 1
        if self.phase == "loading" and self._all_in(self._ports) and self._all_in(self._held):
            if alone:  # no files to compare, and no links to make
                return [self.show(self.plan.head.device_id, "ready"), *self._prove()]
            return self._connect(self.plan.plan_gen) if self._all_in(self._files) else []
        if self.phase == "linking" and self._all_in(self._linked):
            return self._ready() if self._proof else self._prove()
        return []

    def _all_in(self, known: Collection[str]) -> bool:
        return all(s.device_id in known for s in self.plan.stages)

    def _prove(self) -> list[Action]:
        self.phase = "proving"
        return [ProveRing(self.plan)]

    def _connect(self, plan_gen: int) -> list[Action]:
        self.phase = "linking"
        self.plan = msgspec.structs.replace(self.plan, plan_gen=plan_gen)
        self._linked.clear()
        return [ConnectRing(self.plan, tuple(self._ports[s.device_id] for s in self.plan.stages))]

    def _ready(self) -> list[Action]:
        self.phase = "ready"
        return [Ready(self.plan, self._proof)]

    def _fail(self, problem: Problem, device_id: str = "") -> list[Action]:
        self.failed_in, self.phase = self.phase, "failed"
        return [GiveUp(device_id, problem)]
