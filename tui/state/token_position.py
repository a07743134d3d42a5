"""A token's position in the ring, at the measured pace. Pure."""

from __future__ import annotations

from typing import NamedTuple

from core.events import Plan
from tui.state.hops import Ring
from tui.state.plan_words import is_of_ranks

# shortest round that the eye can follow
ROUND_S = 2.0
_FACTORS = tuple(base * 10**power for power in range(6) for base in (1, 2, 5))


class TokenPosition(NamedTuple):
    """Where the token is."""

    owner: int  # number of the Mac, in layer order
    is_hop: bool  # on the hop from it to the next one; from the last one to the first
    part: float  # elapsed part of its time there


class RingTrip(NamedTuple):
    """One round of a token."""

    legs: tuple[tuple[float, float], ...]  # seconds of (computing, hop) per Mac, in layer order
    slowed: int  # how many times slower it is shown

    @property
    def round_s(self) -> float:
        return _trip_s(self.legs) * self.slowed


def ring_trip_of(plan: Plan, ring: Ring) -> RingTrip | None:
    """A token's round of `plan`; None without hops, before all were measured, and for ranks (they work in parallel)."""
    if is_of_ranks(plan) or not ring.is_measured or len(ring.hops) != len(plan.stages):
        return None
    hops = {stage.device_id: hop for stage, hop in zip(plan.stages, ring.hops, strict=True)}
    owners = [hops[owner.device_id] for owner in plan.owners]
    legs = tuple((hop.compute_s or 0.0, hop.transfer_s or 0.0) for hop in owners)
    trip_s = _trip_s(legs)
    if trip_s <= 0:
        return None
    return RingTrip(legs, next((f for f in _FACTORS if trip_s * f >= ROUND_S), _FACTORS[-1]))


def position_of(trip: RingTrip, elapsed_s: float) -> TokenPosition | None:
    """The token's position `elapsed_s` after its round began on the screen; None after the round."""
    left_s = elapsed_s / trip.slowed
    for owner, leg in enumerate(trip.legs):
        for is_hop, seconds in enumerate(leg):
            if left_s < seconds:
                return TokenPosition(owner, bool(is_hop), left_s / seconds)
            left_s -= seconds
    return None


def _trip_s(legs: tuple[tuple[float, float], ...]) -> float:
    return sum(map(sum, legs))
