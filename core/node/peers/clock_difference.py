"""How another Mac's clock differs from this one's: as exactly as the way there and back is short."""

from __future__ import annotations

from typing import NamedTuple


class ClockDifference(NamedTuple):
    """Another Mac's clock shows `ahead_s` more than this one's, give or take `error_s`."""

    ahead_s: float
    error_s: float


def clock_difference(sent_s: float, answered_s: float, came_s: float) -> ClockDifference:
    """Of a question that was sent and answered at these times of this Mac, and `answered_s` of the other one: that was
    somewhere in between.
    """
    return ClockDifference(answered_s - (sent_s + came_s) / 2, (came_s - sent_s) / 2)
