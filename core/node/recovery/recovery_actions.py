"""The orders of a recovery, in the order in which they are given."""

from __future__ import annotations

import msgspec

from core import events
from core.errors import Problem
from core.events import Plan


class ShowRecovery(msgspec.Struct, frozen=True):
    """Publish this state; its `since` is a monotonic time."""

    recovery: events.Recovery


class Seek(msgspec.Struct, frozen=True):
    """Make a plan over the connected Macs except `without`; `found` or `unfit` answers."""

    without: frozenset[str]


class Rebuild(msgspec.Struct, frozen=True):
    """Load `plan` with new workers and continue the answers there; `ready` answers."""

    plan: Plan


class Relink(msgspec.Struct, frozen=True):
    """Link the ring again, since all its Macs are back; `ready` or `lost` answers."""


class Free(msgspec.Struct, frozen=True):
    """Free the memory on every Mac; the answers are kept."""


class CancelAnswers(msgspec.Struct, frozen=True):
    """Cancel the answers, as the user chose."""


class End(msgspec.Struct, frozen=True):
    """Give up the plan because of `problem`; the answers end with `shown`."""

    problem: Problem
    shown: Problem


Lasting = Seek | Rebuild | Relink | Free
Action = ShowRecovery | CancelAnswers | End | Lasting
