"""The link from this Mac's stage to the next one: on which way it goes, and when it should go on another. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from core.link.ways import Way


class Edge:
    """`way`: on which it goes; None while it is being made. `direct` are ways through networks that both Macs are on,
    as of now.
    """

    def __init__(self) -> None:
        self.way: Way | None = None
        self._offered: tuple[Way, ...] = ()

    def offer(self, direct: Sequence[Way]) -> None:
        """It is made anew, on the best of these that stands, or on another where none does."""
        self.way, self._offered = None, tuple(direct)

    def linked(self, way: Way) -> None:
        """It stands."""
        self.way = way

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


def _has(ways: Sequence[Way], wanted: Way) -> bool:
    return any(way.is_same(wanted) for way in ways)
