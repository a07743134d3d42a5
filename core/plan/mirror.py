"""Size the mirror: copies of all Macs' caches on the head, so that nothing is read again when a Mac drops out."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final

import msgspec

from core.events import Plan, Stage
from core.models.slicing.split_profile import SplitProfile
from core.plan.make_plan import gigabytes, missing_bytes
from core.plan.topology import has_ranks
from core.settings import MIB

# tokens by which a row's mirror may be late: fewer cost more frames, more must be read again
EVERY: Final = 32
# the same for large states, which are sent whole each time
EVERY_OF_LARGE: Final = 48
LARGE: Final = MIB
# of one layer, since it is sent in one frame
MOST_STATE: Final = 8 * MIB
# where nothing was measured
TOKEN_S: Final = 0.05

SecondsOfHop = Callable[[int, str, str], float]


def with_mirror(plan: Plan, profile: SplitProfile | None, token_s: float | None, hop_s: SecondsOfHop) -> Plan:
    """Add a mirror and a note if there is room. `token_s`: seconds per token; `hop_s`: seconds of a frame."""
    if has_ranks(plan):
        return _noted(plan, "No mirror: another split can't use a tensor split's caches.")
    states = [cache.fixed_bytes for cache in profile.caches] if profile else []
    if max(states, default=0) > MOST_STATE:
        return _noted(plan, f"No mirror: the state of a layer of {plan.model} is over {MOST_STATE // MIB} MiB.")
    # the older states are kept while newer ones arrive
    needed, free = sum(stage.kv_bytes for stage in plan.stages) + sum(states), -missing_bytes(plan.head)
    share = wire_share(plan, profile, token_s or TOKEN_S, hop_s)
    if free <= 0:
        return _noted(plan, f"No mirror: {plan.head.peer} has no memory left for it.")
    kept = min(needed, free)
    part = "" if kept == needed else f" of {gigabytes(needed)}"
    often = f" {max(0.1, sum(states) / 1e6):,.1f} MB of states are sent every {cut_distance(sum(states))} tokens."
    percent = "less than 1 %" if share < 0.01 else f"{100 * share:.0f} %"
    note = f"Mirror on {plan.head.peer}: uses {percent} of the link and {gigabytes(kept)}{part} GB there."
    note += often if any(states) else ""
    return _noted(msgspec.structs.replace(plan, mirror_bytes=kept), note)


def cut_distance(state_bytes: int) -> int:
    """Tokens that a row may advance before it is mirrored again, by the size of its states."""
    return EVERY if state_bytes <= LARGE else EVERY_OF_LARGE


def wire_share(plan: Plan, profile: SplitProfile | None, token_s: float, hop_s: SecondsOfHop) -> float:
    carried, longest = 0.0, 0.0
    every = cut_distance(sum(cache.fixed_bytes for cache in profile.caches) if profile else 0)
    for stage, after in pairwise([*plan.stages[1:], plan.head]):
        carried += _token_bytes(plan, stage, profile, every)
        ends = (stage.device_id, after.device_id)
        longest = max(longest, hop_s(int(carried) + 1, *ends) - hop_s(1, *ends))
    return longest / token_s


def _token_bytes(plan: Plan, stage: Stage, profile: SplitProfile | None, every: int) -> float:
    """Bytes mirrored per token of a stage: what it adds to its caches, and a share of its states."""
    if profile is None:
        return stage.kv_bytes // max(1, plan.context)
    caches = profile.caches[stage.start : stage.stop]
    states = sum(cache.fixed_bytes for cache in caches)
    return sum(cache.bytes_for(1, plan.kv_bits) for cache in caches) - states + states / every


def _noted(plan: Plan, note: str) -> Plan:
    return msgspec.structs.replace(plan, notes=(*plan.notes, note))
