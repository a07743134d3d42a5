"""What crosses each hop of a ring for one token of one row, in bytes."""

from __future__ import annotations

from typing import Final

from core.events import Plan
from core.models.slicing.split_profile import SplitProfile
from core.plan.stage_roles import departing, role_of
from core.plan.topology import has_ranks

TOKEN_BYTES: Final = 4


def hop_bytes(plan: Plan, profile: SplitProfile | None) -> tuple[int, ...]:
    """What each stage sends to the next one, the last stage to the head, in ring order: what its last layer returns, or
    a token id from who has run no layer yet and from who has the output. It weighs what the plan's wire type makes of
    it. Ranks hand token ids on, and the last one
    acknowledges; what they add up is extra. Empty where nothing is sent or not known.
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
