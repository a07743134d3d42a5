"""How long to wait before something that failed is started again."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf


class BackOff:
    """Waits longer after each failure, up to the last of `steps_s`, until it has once run for `steady_s`. Times are
    seconds of any one clock.
    """

    def __init__(self, steps_s: Sequence[float], steady_s: float) -> None:
        self._steps_s, self._steady_s = steps_s, steady_s
        self._started_at = inf
        self._failures = 0

    def started(self, now: float) -> None:
        """It runs from now on."""
        self._started_at = now

    def failed(self, now: float) -> float:
        """It ended by a failure: the seconds until it is to be started again."""
        self._failures = 1 if now - self._started_at > self._steady_s else self._failures + 1
        return self._steps_s[min(self._failures, len(self._steps_s)) - 1]

    def ended_well(self) -> None:
        """It ended as it was meant to: what failed before counts no more."""
        self._failures = 0
