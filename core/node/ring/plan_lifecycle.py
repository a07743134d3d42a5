"""From a plan to a ring that is ready, and back when something breaks: a pure state machine.

Reports of stages go in, actions come out; no clock, no I/O. States: loading (what a disk lacks comes there, stages read
their layers and check their files) → linking (every layer is owned once, links are being made) → proving (the ring runs
a fixed prompt, once) → ready; a broken link leads back to linking under a new plan generation, so that a frame of the
old links can never be taken for a new one; a lost stage, a stage that holds something else and a failed proof lead to
failed. What the stages hold is not let go of with that: once a lost Mac is back, the ring may be linked anew
(`resume`).
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
    """Tell every stage to link to its neighbours under this plan; `ports` are the data ports, in ring order."""

    plan: Plan
    ports: tuple[int, ...]


class ShowStage(msgspec.Struct, frozen=True):
    """Publish the state of a stage."""

    state: StageState


class ProveRing(msgspec.Struct, frozen=True):
    """Let the head run the proof: the ring is sealed and every layer is owned once."""

    plan: Plan


class Ready(msgspec.Struct, frozen=True):
    """The ring is sealed and has computed; `proof` is the sentence that says how far it is proved."""

    plan: Plan
    proof: str


class Broke(msgspec.Struct, frozen=True):
    """A link of the stage on `device_id` is gone, and is being made anew."""

    device_id: str
    problem: Problem


class GiveUp(msgspec.Struct, frozen=True):
    """The plan cannot run as it is, because of the stage on `device_id`, or of none in particular ("")."""

    device_id: str
    problem: Problem


Action = ConnectRing | ShowStage | ProveRing | Ready | Broke | GiveUp


class Mismatch(NamedTuple):
    """The Mac that has other files than the plan's, and what is other."""

    device_id: str
    problem: Problem


class PlanLifecycle:
    """What is known of every stage of one plan."""

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

    def fetching(self, device_id: str, done_bytes: int, total_bytes: int) -> ShowStage:
        """What a stage reads comes to its Mac's disk."""
        return self._show(device_id, "fetching", done_bytes=done_bytes, total_bytes=total_bytes)

    def comparing(self, device_id: str, done_bytes: int, total_bytes: int) -> ShowStage:
        """What came from the hub is compared with its hashes."""
        return self._show(device_id, "comparing", done_bytes=done_bytes, total_bytes=total_bytes)

    def prepared(self, device_id: str, port: int) -> list[Action]:
        """The worker of a stage listens for data."""
        self._ports[device_id] = port
        return self._advance()

    def loading(self, device_id: str, done_bytes: int, total_bytes: int) -> list[Action]:
        """A stage reads its layers."""
        return [self._show(device_id, "loading", done_bytes=done_bytes, total_bytes=total_bytes)]

    def loaded(self, device_id: str, held: Loaded) -> list[Action]:
        """A stage holds its layers."""
        if self.phase != "loading":
            return []
        self._held[device_id] = held
        return [self._show(device_id, "linking"), *self._examine()]

    def checked(self, device_id: str, files: Mapping[str, str]) -> list[Action]:
        """What the files of a stage hold: SHA-256 by name."""
        if self.phase != "loading":
            return []
        self._files[device_id] = files
        return self._examine()

    def linked(self, device_id: str, plan_gen: int) -> list[Action]:
        """A stage has both its links under `plan_gen`."""
        if plan_gen != self.plan.plan_gen or self.phase != "linking":
            return []
        self._linked.add(device_id)
        return [self._show(device_id, "ready"), *self._advance()]

    def broken(self, device_id: str, plan_gen: int, problem: Problem) -> list[Action]:
        """A link of a stage is gone, its layers are not: link anew, a few times."""
        if plan_gen != self.plan.plan_gen or self.phase not in ("linking", "proving", "ready"):
            return []
        self._relinks += 1
        if self._relinks > MAX_RELINKS:
            return self._fail(problem, device_id)
        shown = self._show(device_id, "broken", detail=problem.what)
        return [shown, Broke(device_id, problem), *self._connect(self.plan.plan_gen + 1)]

    def resume(self) -> list[Action]:
        """Every Mac of the ring is there again, and may hold what it held: link anew. Nothing where it never stood."""
        if self.phase != "failed" or not self._proof:
            return []
        self._relinks = 0
        return self._connect(self.plan.plan_gen + 1)

    def proved(self, plan_gen: int, proof: str) -> list[Action]:
        """The proof went well: it holds for the layers, whatever links come after."""
        if plan_gen != self.plan.plan_gen or self.phase != "proving":
            return []
        self._proof = proof
        return self._ready()

    def disproved(self, plan_gen: int, problem: Problem) -> list[Action]:
        """The ring does not compute what it should."""
        if plan_gen != self.plan.plan_gen or self.phase != "proving":
            return []
        return self._fail(problem)

    def lost(self, device_id: str, problem: Problem) -> list[Action]:
        """A stage is gone with its layers."""
        if self.phase == "failed" or all(s.device_id != device_id for s in self.plan.stages):
            return []
        if problem.kind == "ModelMismatch":
            self.mismatch = Mismatch(device_id, problem)
        return [self._show(device_id, "lost", detail=problem.what), *self._fail(problem, device_id)]

    def distrusted(self, device_id: str, problem: Problem) -> list[Action]:
        """A Mac must see no prompt any more, and none of its part in the plan."""
        if self.phase == "failed" or all(part.device_id != device_id for part in self.plan.parts):
            return []
        return self.lost(device_id, problem) or self._fail(problem)

    def abandon(self) -> None:
        """The plan is not wanted any more; nothing comes of what its stages still say."""
        self.phase = "failed"

    def is_prepared(self, device_id: str) -> bool:
        """Whether the worker of a stage has answered."""
        return device_id in self._ports

    def unloaded(self) -> list[str]:
        """The Macs that do not hold their layers yet."""
        return [s.device_id for s in self.plan.stages if s.device_id not in self._held]

    def served(self) -> None:
        """A token came of the ring: earlier broken links no longer count."""
        self._relinks = 0

    def _examine(self) -> list[Action]:
        """A fault is told at once, not after the slowest Mac has loaded."""
        problem = first_fault(self.plan, self._held, self._files)
        if problem and (device_id := mismatched(self.plan, self._held, self._files)):
            self.mismatch = Mismatch(device_id, problem)
        return self._fail(problem, self.mismatch.device_id if self.mismatch else "") if problem else self._advance()

    def _advance(self) -> list[Action]:
        alone = len(self.plan.stages) == 1
        if self.phase == "loading" and self._all_in(self._ports) and self._all_in(self._held):
            if alone:  # there are no files to compare with, and no links to make
                return [self._show(self.plan.head.device_id, "ready"), *self._prove()]
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

    def _show(
        self,
        device_id: str,
        status: StageStatus,
        *,
        done_bytes: int = 0,
        total_bytes: int = 0,
        detail: str = "",
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
