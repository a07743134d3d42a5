"""Divide layers by measured speed, within the Macs' memory, so that the slowest stage is as fast as possible.

Only measurements on these Macs count. With several rows, and during prefill, all stages wait for the slowest one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from core.events import BalanceChoice, Peer, Plan
from core.plan.nearest_cuts import Overflow, best_cuts
from core.plan.topology import has_ranks

# seconds per token of a Mac (device id) for these layers, with the output or without; None: not measured
StageSeconds = Callable[[str, range, bool], float | None]

# a smaller difference is noise
CLEARLY_SLOWER: Final = 1.2


class Balanced(NamedTuple):
    """The chosen cuts."""

    cuts: tuple[int, ...]  # first layer of each owner but the first
    reason: str = ""  # sentence; "" if balancing was not asked for


class StageOwners(NamedTuple):
    """Macs in layer order with their speeds; number `output` has the output head."""

    macs: Sequence[Peer]
    output: int
    layers: int
    stage_s: StageSeconds

    def seconds(self, owner: int, start: int, stop: int) -> float:
        """Seconds per token of a stage; infinite if not measured."""
        found = self.stage_s(self.macs[owner].device_id, range(start, stop), owner == self.output)
        return float("inf") if found is None else found

    def slowest_s(self, cuts: Sequence[int]) -> float:
        return max(self.seconds(owner, *edges) for owner, edges in enumerate(pairwise((0, *cuts, self.layers))))

    @property
    def unmeasured(self) -> list[str]:
        every = range(self.layers)
        return [mac.name for mac in self.macs if self.stage_s(mac.device_id, every, False) is None]


def balanced(
    choice: BalanceChoice, by_memory: Sequence[int], legal: Sequence[int], owners: StageOwners, overflow: Overflow
) -> Balanced:
    """Choose the cuts `by_memory`, or faster `legal` ones that fit: for "speed", and for "auto" if clearly faster."""
    kept = tuple(by_memory)
    if choice == "memory" or len(owners.macs) < 2:
        return Balanced(kept)
    if unmeasured := owners.unmeasured:
        names = " and ".join(unmeasured)
        return Balanced(
            kept, f"Divided by memory: the speed of {names} isn't measured yet. The next answer measures it."
        )
    found = fastest_cuts(legal, kept, owners, overflow)
    if found is None:  # it doesn't fit by memory either, and the plan reports that
        return Balanced(kept)
    slowest_s, otherwise_s = owners.slowest_s(found), owners.slowest_s(kept)
    if otherwise_s <= slowest_s:
        return Balanced(
            kept,
            f"Divided by memory: the slowest Mac takes {_ms(slowest_s)} per token; by speed it would be no faster.",
        )
    if choice == "auto" and otherwise_s < CLEARLY_SLOWER * slowest_s:
        what = f"by speed the slowest Mac would take {_ms(slowest_s)} per token instead of {_ms(otherwise_s)}"
        return Balanced(kept, f"Divided by memory: {what}.")
    what = f"the slowest Mac takes {_ms(slowest_s)} per token instead of {_ms(otherwise_s)} by memory"
    return Balanced(found, f"Divided by speed: {what}.")


def fastest_cuts(
    legal: Sequence[int], wanted: Sequence[int], owners: StageOwners, overflow: Overflow
) -> tuple[int, ...] | None:
    """The `legal` cuts that make the slowest stage fastest, nearest to `wanted` on a tie; None if nothing fits."""

    def seconds(owner: int, start: int, stop: int) -> float | None:
        return None if overflow(owner, start, stop) else owners.seconds(owner, start, stop)

    return best_cuts(wanted, legal, owners.layers, seconds, max)


def is_clearly_slower(plan: Plan, other: Plan, stage_s: StageSeconds) -> bool:
    """Whether the slowest stage of `plan` takes clearly longer than that of `other`, which differs in cuts only."""
    macs = [stage.device_id for stage in plan.stages]
    if has_ranks(plan) or macs != [stage.device_id for stage in other.stages]:
        return False
    return _slowest_s(plan, stage_s) >= CLEARLY_SLOWER * _slowest_s(other, stage_s) > 0


def _slowest_s(plan: Plan, stage_s: StageSeconds) -> float:
    found = [stage_s(s.device_id, range(s.start, s.stop), s.device_id == plan.output) for s in plan.stages]
    known = [seconds for seconds in found if seconds is not None]
    return max(known) if len(known) == len(found) else 0.0


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
