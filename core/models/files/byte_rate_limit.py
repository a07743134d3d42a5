"""How quick bytes may come, from Macs or from the hub. Pure: the clock is passed in."""

from __future__ import annotations


class ByteRateLimit:
    """At most `bytes_per_s` bytes a second, 0 for as many as come. All that come for one purpose share one; threads
    may.
    """

    def __init__(self, bytes_per_s: int = 0) -> None:
        self.bytes_per_s = bytes_per_s
        self._free_at = 0.0

    def change(self, bytes_per_s: int) -> None:
        """Another limit from now on, also for those that wait."""
        self.bytes_per_s = bytes_per_s
        self._free_at = 0.0

    def came(self, nbytes: int, now: float) -> float:
        """So many came at `now`: until when whoever brought them asks for nothing."""
        if not self.bytes_per_s:
            return 0.0
        self._free_at = max(self._free_at, now) + nbytes / self.bytes_per_s
        return self._free_at

    def left_s(self, until: float, now: float) -> float:
        """Seconds that are left of that; none where the limit was changed meanwhile."""
        return max(0.0, min(until, self._free_at) - now)

    def most(self, nbytes: int, seconds: float) -> int:
        """How many pieces of `nbytes` bytes may come in so many seconds; one at least."""
        return max(1, int(self.bytes_per_s * seconds / nbytes)) if self.bytes_per_s else 1 << 30
