"""The orders of the plan machine, in the order in which they are given."""

from __future__ import annotations

import msgspec

from core.errors import Problem
from core.events import Plan, Recovery, StageState


class Prepare(msgspec.Struct, frozen=True):
    """Have a Mac hold stage `index`."""

    plan: Plan
    index: int


class AskFiles(msgspec.Struct, frozen=True):
    """Ask a Mac with other files than this one which they are."""

    plan: Plan
    device_id: str


class Link(msgspec.Struct, frozen=True):
    """Have the Mac of stage `index` link to its neighbours; the next one's worker listens on `port`."""

    plan: Plan
    index: int
    port: int


class RunProof(msgspec.Struct, frozen=True):
    """Run the proof: every layer has one owner, every link is sealed."""

    plan_gen: int


class Ready(msgspec.Struct, frozen=True):
    """Report that the ring computes, and hand it the answers."""

    proof: str  # the sentence about the proof


class Lost(msgspec.Struct, frozen=True):
    """Note why the plan stopped: because of that Mac, or of none in particular ("")."""

    device_id: str
    problem: Problem
    was_linking: bool


class Seek(msgspec.Struct, frozen=True):
    """Make a plan over the connected Macs except `without`; `found` or `unfit` answers with the number."""

    number: int
    without: frozenset[str]


class Rebuild(msgspec.Struct, frozen=True):
    """Load the plan in place of the one before and continue the answers there; `brought` answers."""

    before: Plan


class Free(msgspec.Struct, frozen=True):
    """Free the memory on every Mac; the answers are kept."""


class CancelAnswers(msgspec.Struct, frozen=True):
    """Cancel the answers, as the user chose."""


class End(msgspec.Struct, frozen=True):
    """Give up the plan because of `problem`; the answers end with `shown`."""

    problem: Problem
    shown: Problem


class ShowRecovery(msgspec.Struct, frozen=True):
    """Publish this state; its `since` is a monotonic time."""

    recovery: Recovery


class ShowStage(msgspec.Struct, frozen=True):
    """Publish the state of a stage."""

    state: StageState


StageOrder = Prepare | AskFiles | Link
Order = StageOrder | RunProof | Ready | Lost | Seek | Rebuild | Free | CancelAnswers | End | ShowRecovery | ShowStage
