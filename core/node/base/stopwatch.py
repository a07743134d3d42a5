"""How long each part of one piece of work took."""

from __future__ import annotations

from time import monotonic


class Stopwatch:
    """`laps`: seconds, by name."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._since = monotonic()

    def begin(self) -> None:
        """What went by so far was not work."""
        self._since = monotonic()

    def lap(self, name: str) -> None:
        """`name` took from the last lap until now."""
        self.lap_until(name, monotonic())

    def lap_until(self, name: str, at: float) -> None:
        """`name` took from the last lap until `at`, by the machine's clock, which another process may have told."""
        self.laps[name] = max(0.0, at - self._since)
        self._since = at

    def note(self, name: str, seconds: float) -> None:
        """`name` took so long inside another lap."""
        self.laps[name] = seconds
