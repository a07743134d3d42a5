"""How often something may happen (token buckets, throttles, back-off), or did. Times: seconds of a monotonic clock."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple


class Rate(NamedTuple):
    """A limit: `burst` at once, then `per_s` a second."""

    per_s: float
    burst: float


def decode_rate(tokens: int, first: float | None, last: float | None) -> float | None:
    """Tokens per second from the `first` of `tokens` tokens to the `last`; None for fewer than two."""
    return (tokens - 1) / (last - first) if first and last and tokens > 1 and last > first else None


class TokenBucket:
    """Tokens left of a rate; full at first."""

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self._left, self._at = rate.burst, -inf

    def take(self, now: float) -> bool:
        """Take a token; False if the bucket is empty."""
        self._refill(now)
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def spend(self, now: float) -> float:
        """Take a token, on credit if the bucket is empty; returns seconds until the debt is paid, 0.0 for none."""
        self._refill(now)
        self._left -= 1
        return max(0.0, -self._left / self.rate.per_s)

    def _refill(self, now: float) -> None:
        if self._at > -inf:
            self._left = min(self.rate.burst, self._left + (now - self._at) * self.rate.per_s)
        self._at = now


class Throttle:
    """Lets something happen at most once in `every_s` seconds."""

    def __init__(self, every_s: float) -> None:
        self.every_s = every_s
        self.due = -inf  # earliest next time

    def is_due(self, now: float) -> bool:
        return now >= self.due

    def note(self, now: float) -> None:
        self.due = now + self.every_s

    def take(self, now: float) -> bool:
        """Whether it may happen; if so, count it as happening now."""
        if not self.is_due(now):
            return False
        self.note(now)
        return True


class BackOff:
    """Pauses before retries: the next of `steps_s` per failure; from the first again after `steady_s` or `reset`."""

    def __init__(self, steps_s: Sequence[float], steady_s: float = inf) -> None:
        self._steps_s, self._steady_s = steps_s, steady_s
        self._started_at = inf
        self._failures = 0

    def started(self, now: float) -> None:
        self._started_at = now

    def failed(self, now: float = 0.0) -> float:
        """Note a failure: seconds until the next try."""
        self._failures = 1 if now - self._started_at > self._steady_s else self._failures + 1
        return self._steps_s[min(self._failures, len(self._steps_s)) - 1]

    def reset(self) -> None:
        self._failures = 0
