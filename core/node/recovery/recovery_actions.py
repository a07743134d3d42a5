"""What a recovery wants done, in the order in which it is given."""

from __future__ import annotations

import msgspec

from core import events
from core.errors import Problem
from core.events import Plan


class ShowRecovery(msgspec.Struct, frozen=True):
    """Publish this; its `since` is a time of the machine's clock."""

    recovery: events.Recovery


class Seek(msgspec.Struct, frozen=True):
    """Make a plan over the Macs that are linked, but for `without`: answered by `found` or `unfit`."""

    without: frozenset[str]


class Rebuild(msgspec.Struct, frozen=True):
    """Load `plan` with new workers and hand them the answers, behind what is written: answered by `ready`."""

    plan: Plan


class Relink(msgspec.Struct, frozen=True):
    """Link the ring anew, every Mac of which is there again: answered by `ready`, or by `lost`."""


class Free(msgspec.Struct, frozen=True):
    """Free the memory on every Mac; the answers are kept."""


class CancelAnswers(msgspec.Struct, frozen=True):
    """End the answers as the person wants it, with what they have."""


class End(msgspec.Struct, frozen=True):
    """The plan is given up because of `problem`, the answers end with `shown`, and the machine is over."""

    problem: Problem
    shown: Problem


Lasting = Seek | Rebuild | Relink | Free
Action = ShowRecovery | CancelAnswers | End | Lasting
