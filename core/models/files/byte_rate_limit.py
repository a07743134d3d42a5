"""Limits the byte rate of downloads and transfers. Pure: the caller passes the clock."""

from __future__ import annotations


class ByteRateLimit:
    """At most `bytes_per_s` bytes per second; 0: no limit. All sources and threads of a transfer share one."""

    def __init__(self, bytes_per_s: int = 0) -> None:
        self.bytes_per_s = bytes_per_s
        self._free_at = 0.0

    def change(self, bytes_per_s: int) -> None:
        """Set another limit, also for receivers that are waiting."""
        self.bytes_per_s = bytes_per_s
        self._free_at = 0.0

    def came(self, nbytes: int, now: float) -> float:
        """Count bytes received at `now`; returns the time until which the receiver must not request more."""
        if not self.bytes_per_s:
            return 0.0
        self._free_at = max(self._free_at, now) + nbytes / self.bytes_per_s
        return self._free_at

    def left_s(self, until: float, now: float) -> float:
        """Seconds left until `until`; 0 if the limit has changed."""
        return max(0.0, min(until, self._free_at) - now)

    def most(self, nbytes: int, seconds: float) -> int:
        """Number of pieces of `nbytes` bytes allowed in that many seconds; at least 1."""
        return max(1, int(self.bytes_per_s * seconds / nbytes)) if self.bytes_per_s else 1 << 30
