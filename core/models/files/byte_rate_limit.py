"""Limits the rate of bytes from Macs or from the hub. Pure: the clock is passed in."""

from __future__ import annotations


class ByteRateLimit:
    """At most `bytes_per_s` bytes per second; 0: no limit. Sources of one transfer share one; so may threads."""

    def __init__(self, bytes_per_s: int = 0) -> None:
        self.bytes_per_s = bytes_per_s
        self._free_at = 0.0

    def change(self, bytes_per_s: int) -> None:
        """Set another limit, also for those that wait."""
        self.bytes_per_s = bytes_per_s
        self._free_at = 0.0

    def came(self, nbytes: int, now: float) -> float:
        """Count bytes that came at `now`; the time until which their receiver should request nothing."""
        if not self.bytes_per_s:
            return 0.0
        self._free_at = max(self._free_at, now) + nbytes / self.bytes_per_s
        return self._free_at

    def left_s(self, until: float, now: float) -> float:
        """Seconds left until then; 0 if the limit was changed meanwhile."""
        return max(0.0, min(until, self._free_at) - now)

    def most(self, nbytes: int, seconds: float) -> int:
        """How many pieces of `nbytes` bytes may come in that many seconds; at least 1."""
        return max(1, int(self.bytes_per_s * seconds / nbytes)) if self.bytes_per_s else 1 << 30
