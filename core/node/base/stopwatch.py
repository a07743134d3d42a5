"""Seconds that each part of a piece of work took."""

from __future__ import annotations

from time import monotonic


class Stopwatch:
    """Laps of one piece of work."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}  # seconds by name
        self._since = monotonic()

    def begin(self) -> None:
        self._since = monotonic()

    def lap(self, name: str) -> None:
        self.lap_until(name, monotonic())

    def lap_until(self, name: str, at: float) -> None:
        """Note the time from the last lap until `at`, a monotonic time that may come from another process."""
        self.laps[name] = max(0.0, at - self._since)
        self._since = at

    def note(self, name: str, seconds: float) -> None:
        self.laps[name] = seconds
