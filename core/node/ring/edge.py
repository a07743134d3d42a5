"""The link from this Mac's stage to the next one: on which way it goes, and when it should go on another. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from core.link.ways import Tried, Way

TRY_EVERY_S: Final = 30.0
TIMES: Final = 3
QUICKER: Final = 0.5
QUICKER_S: Final = 0.001
REST_S: Final = 600.0


class Edge:
    """`way`: on which it goes; None while it is being made. `direct` are ways through networks that both Macs are on,
    as of now. `now`: seconds of one monotonic clock.
    """

    def __init__(self) -> None:
        self.way: Way | None = None
        self._offered: tuple[Way, ...] = ()
        self._try_at = 0.0
        self._times = 0

    def offer(self, direct: Sequence[Way]) -> None:
        """It is made anew, on the best of these that stands, or on another where none does."""
        self.way, self._offered = None, tuple(direct)

    def linked(self, way: Way) -> None:
        """It stands."""
        self.way = way
        self._times = 0

    def reason_to_move(self, direct: Sequence[Way], name: str) -> str:
        """Why it should be made anew, now that `direct` lead to the next Mac, which is called `name`; "" where it
        should not. A way of a better kind is tried once each time it appears.
        """
        now = self.way
        if now is None:
            return ""
        was_direct = _has(self._offered, now)
        self._offered = tuple(way for way in self._offered if _has(direct, way) or way.is_same(now))
        if was_direct and not _has(direct, now):
            return f"The {now.kind or 'direct'} path to {name} is gone: the ring goes on over another one."
        new = [way for way in direct if way.rank < now.rank and not _has(self._offered, way)]
        return f"A {new[0].kind} path to {name} has appeared: the ring moves to it." if new else ""

    def to_try(self, direct: Sequence[Way], now: float) -> list[Way]:
        """The way in use and the others of its kind, where there is a choice and it is time to time them: every half
        minute.
        """
        used = self.way
        if used is None or now < self._try_at:
            return []
        alike = [way for way in direct if way.rank == used.rank]
        if len(alike) < 2 or not _has(alike, used):
            return []
        self._try_at = now + TRY_EVERY_S
        return alike

    def tried(self, tried: Sequence[Tried], now: float, name: str) -> str:
        """Why it should be made anew, now that these were timed; "" where it should not. Another one has to take at
        most half of the time three times running, and a millisecond less; after a move they are let be for ten minutes.
        """
        used = [each.rtt_s for each in tried if self.way and each.way.is_same(self.way)]
        best_s = min((each.rtt_s for each in tried), default=0.0)
        is_slow = bool(used) and best_s <= min(QUICKER * used[0], used[0] - QUICKER_S)
        self._times = self._times + 1 if is_slow else 0
        if self._times < TIMES:
            return ""
        self._times, self._try_at = 0, now + REST_S
        path = f"The path to {name} takes {used[0] * 1e3:.1f} ms there and back, another one {best_s * 1e3:.1f} ms"
        return f"{path}: the ring moves to it."


def _has(ways: Sequence[Way], wanted: Way) -> bool:
    return any(way.is_same(wanted) for way in ways)
