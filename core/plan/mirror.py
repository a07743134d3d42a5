"""Whether the head keeps what all Macs hold of a conversation, so that nobody reads it again when one is lost: pure.

What the others add for each token then travels to the head. Nobody else keeps anything: the head holds the conversation
anyway, and without it there is nobody to go on for.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final

import msgspec

from core.events import MirrorChoice, Plan, Stage
from core.models.slicing.split_profile import SplitProfile
from core.plan.fit import at_least_a_tenth, missing_bytes

# of the time that a token takes
MOST_SHARE: Final = 0.1
# where nothing was measured
TOKEN_S: Final = 0.05

SecondsOfHop = Callable[[int, str, str], float]


def with_mirror(
    plan: Plan, choice: MirrorChoice, profile: SplitProfile | None, token_s: float | None, hop_s: SecondsOfHop
) -> Plan:
    """`plan` with a mirror where that was asked for, or is worth it, and a note about it. A token takes `token_s`
    seconds, a frame of some bytes from one Mac to another `hop_s`.
    """
    if choice == "off" or (choice == "auto" and len(plan.stages) == 1):
        return plan
    if profile and not _is_cuttable(profile):
        note = f"Nothing is mirrored: what {plan.model} keeps of a conversation cannot be cut at a token."
        return plan if choice == "auto" else _noted(plan, note)
    needed, free = sum(stage.kv_bytes for stage in plan.stages), -missing_bytes(plan.head)
    share = wire_share(plan, profile, token_s or TOKEN_S, hop_s)
    if choice == "auto" and (needed > free or share > MOST_SHARE or profile is None):
        return plan
    if free <= 0:
        return _noted(plan, f"Nothing is mirrored: {plan.head.peer} has no memory left for it.")
    kept = min(needed, free)
    part = "" if kept == needed else f" of {at_least_a_tenth(needed)}"
    note = f"Mirrored to {plan.head.peer}: {_percent(share)} of the wire, {at_least_a_tenth(kept)}{part} GB there."
    return _noted(msgspec.structs.replace(plan, mirror_bytes=kept), note)


def wire_share(plan: Plan, profile: SplitProfile | None, token_s: float, hop_s: SecondsOfHop) -> float:
    """Of the time that a token takes, for how much of it the busiest link carries what is mirrored of it."""
    carried, longest = 0, 0.0
    for stage, after in pairwise([*plan.stages[1:], plan.head]):
        carried += _token_bytes(plan, stage, profile)
        ends = (stage.device_id, after.device_id)
        longest = max(longest, hop_s(carried + 1, *ends) - hop_s(1, *ends))
    return longest / token_s


def _token_bytes(plan: Plan, stage: Stage, profile: SplitProfile | None) -> int:
    """What a token adds to the caches of a stage, also to windows."""
    if profile is None:
        return stage.kv_bytes // max(1, plan.context)
    return sum(cache.bytes_for(1, plan.kv_bits) for cache in profile.caches[stage.start : stage.stop])


def _is_cuttable(profile: SplitProfile) -> bool:
    return not any(cache.fixed_bytes for cache in profile.caches)


def _percent(share: float) -> str:
    return "less than 1 %" if share < 0.01 else f"{100 * share:.0f} %"


def _noted(plan: Plan, note: str) -> Plan:
    return msgspec.structs.replace(plan, notes=(*plan.notes, note))
