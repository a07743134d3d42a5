"""Difference between another Mac's clock and this one's, as exact as the round trip is short."""

from __future__ import annotations

from typing import NamedTuple


class ClockDifference(NamedTuple):
    """Another Mac's clock shows `ahead_s` more than this one's, give or take `error_s`."""

    ahead_s: float
    error_s: float


def clock_difference(sent_s: float, answered_s: float, came_s: float) -> ClockDifference:
    """Estimate from one round trip: `sent_s` and `came_s` are this Mac's times, `answered_s` the other Mac's."""
    return ClockDifference(answered_s - (sent_s + came_s) / 2, (came_s - sent_s) / 2)
