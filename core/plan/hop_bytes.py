"""Bytes that cross each hop per token and row."""

from __future__ import annotations

from typing import Final

from core.events import Plan
from core.models.slicing.split_profile import SplitProfile
from core.plan.stage_roles import departing, role_of
from core.plan.topology import has_ranks

TOKEN_BYTES: Final = 4


def hop_bytes(plan: Plan, profile: SplitProfile | None) -> tuple[int, ...]:
    """Bytes each stage sends to the next, the last one to the head, in ring order; empty if unknown or nothing is sent.

    Hidden states in the plan's wire dtype, or a token id from a stage that has run no layer or has the output. Ranks
    pass token ids on, and the last one acknowledges; reduces are not included.
    """
    if has_ranks(plan):
        return (TOKEN_BYTES,) * len(plan.stages)
    if len(plan.stages) == 1 or profile is None or not profile.boundary_bytes:
        return ()
    returned = profile.wire_bytes[plan.wire] if plan.wire else profile.boundary_bytes
    does = [departing(plan), *(role_of(plan, index) for index in range(1, len(plan.stages)))]
    return tuple(
        returned[stage.stop - 1] if done.runs and not done.outputs else TOKEN_BYTES
        for stage, done in zip(plan.stages, does, strict=True)
    )
