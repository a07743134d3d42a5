"""How quick bytes may come. Pure: the clock is passed in."""

from __future__ import annotations


class CopyPace:
    """At most `bytes_per_s` bytes a second, 0 for as many as come."""

    def __init__(self, bytes_per_s: int = 0) -> None:
        self.bytes_per_s = bytes_per_s
        self._free_at = 0.0

    def wait_s(self, nbytes: int, now: float) -> float:
        """So many came at `now`: how many seconds nothing is to be asked for, by whoever shares this pace."""
        if not self.bytes_per_s:
            return 0.0
        self._free_at = max(self._free_at, now) + nbytes / self.bytes_per_s
        return self._free_at - now

    def most(self, nbytes: int, seconds: float) -> int:
        """How many pieces of `nbytes` bytes may come in so many seconds; one at least."""
        return max(1, int(self.bytes_per_s * seconds / nbytes)) if self.bytes_per_s else 1 << 30
