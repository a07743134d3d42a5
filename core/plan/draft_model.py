"""Memory and note of a draft model for speculative decoding on the head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from core.errors import DoesNotFit
from core.events import Peer, Plan
from core.models.files.layout import Layout
from core.plan.make_plan import gigabytes
from core.plan.stage_sizes import StageSizes


class DraftOnHead(NamedTuple):
    """A draft model and its bytes: weights, caches and step memory."""

    name: str
    needed_bytes: int


def draft_on_head(name: str, layout: Layout, context: int, head: Peer) -> DraftOnHead:
    stage = StageSizes(layout, None, context, None).stage(head, range(layout.layers), output=True)
    return DraftOnHead(name, stage.needed_bytes)


def budgets_beside_draft(draft: DraftOnHead | None, macs: Sequence[Peer]) -> list[Peer]:
    """`macs`, the head first, with the head's budget reduced by the draft. Raises DoesNotFit if nothing is left."""
    head, *others = macs
    if draft is None:
        return [head, *others]
    left = head.budget_bytes - draft.needed_bytes
    if left <= 0:
        what = f"The draft {draft.name} needs {gigabytes(draft.needed_bytes)} GB on {head.name}"
        what += f", which has {gigabytes(head.budget_bytes)} GB usable."
        raise DoesNotFit(what, "Choose a smaller draft model, or none.")
    return [msgspec.structs.replace(head, budget_bytes=left), *others]


def with_draft(plan: Plan, draft: DraftOnHead | None) -> Plan:
    if draft is None:
        return plan
    size = gigabytes(draft.needed_bytes)
    note = f"Draft model {draft.name} on {plan.head.peer} ({size} GB), used while it makes answers faster."
    return msgspec.structs.replace(plan, draft=draft.name, draft_bytes=draft.needed_bytes, notes=(*plan.notes, note))
