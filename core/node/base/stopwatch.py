"""How long each part of one piece of work took."""

from __future__ import annotations

from time import perf_counter


class Stopwatch:
    """`laps`: seconds, by name."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._since = perf_counter()

    def begin(self) -> None:
        """What went by so far was not work."""
        self._since = perf_counter()

    def lap(self, name: str) -> None:
        """`name` took from the last lap until now."""
        now = perf_counter()
        self.laps[name] = now - self._since
        self._since = now
