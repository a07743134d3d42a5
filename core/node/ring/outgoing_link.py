"""The link from this Mac's stage to the next: which path it uses, and when it should move. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from core.link.network_paths import MeasuredPath, NetworkPath, token_costs_s

TRY_EVERY_S: Final = 30.0
TIMES: Final = 3  # in a row
QUICKER: Final = 0.5  # share of the time of the path in use
QUICKER_S: Final = 0.001
REST_S: Final = 600.0  # after a move


class OutgoingLink:
    """Chooses the path of the outgoing link; `direct` are the paths over networks that both Macs share now."""

    def __init__(self) -> None:
        self.way: NetworkPath | None = None
        self._offered: tuple[NetworkPath, ...] = ()
        self._try_at = 0.0
        self._times = 0
        self._rates: dict[tuple[str, str], int] = {}
        self._measured: tuple[NetworkPath, ...] = ()
        self._is_measuring = False

    def offer(self, direct: Sequence[NetworkPath]) -> None:
        self.way, self._offered = None, tuple(direct)

    def linked(self, way: NetworkPath) -> None:
        self.way = way
        self._times, self._measured = 0, ()

    def reason_to_move(self, direct: Sequence[NetworkPath], name: str) -> str:
        """Why the link should move, now that `direct` lead to the Mac called `name`; "" to stay. A path of a better
        kind is tried once each time it appears.
        """
        now = self.way
        if now is None:
            return ""
        self._measured = tuple(way for way in self._measured if _has(direct, way))
        self._rates = {_key(way): rate for way in direct if (rate := self._rates.get(_key(way)))}
        was_direct = _has(self._offered, now)
        self._offered = tuple(way for way in self._offered if _has(direct, way) or way.is_same(now))
        if was_direct and not _has(direct, now):
            return f"The {now.kind or 'direct'} path to {name} is gone: the ring continues over another one."
        new = [way for way in direct if way.rank < now.rank and not _has(self._offered, way)]
        return f"A {new[0].kind} path to {name} has appeared: the ring moves to it." if new else ""

    def to_try(self, direct: Sequence[NetworkPath], now: float) -> list[NetworkPath]:
        alike = self._alike(direct)
        if not alike or now < self._try_at:
            return []
        self._try_at = now + TRY_EVERY_S
        return self.rated(alike)

    def to_measure(self, direct: Sequence[NetworkPath]) -> NetworkPath | None:
        """The next path whose rate to measure while idle; call `measured` afterwards. Where there is a choice, each
        path of the kind in use, or of no known kind, is measured once, when it appears or the link is made.
        """
        left = [way for way in self._alike(direct) if not _has(self._measured, way)]
        if self._is_measuring or not left:
            return None
        self._is_measuring = True
        self._measured = (*self._measured, left[0])
        return left[0]

    def measured(self, way: NetworkPath, bytes_per_s: int) -> None:
        self._is_measuring = False
        self._rates[_key(way)] = bytes_per_s

    def rated(self, ways: Sequence[NetworkPath]) -> list[NetworkPath]:
        return [msgspec.structs.replace(way, bytes_per_s=self._rates.get(_key(way), 0)) for way in ways]

    def tried(self, tried: Sequence[MeasuredPath], now: float, name: str) -> str:
        """Why the link should move, now that these paths were timed; "" to stay. Another path must take half a token's
        time or less, three times in a row, and a millisecond less. After a move there is a pause of ten minutes.
        """
        costs = token_costs_s(tried)
        used = [cost for each, cost in zip(tried, costs, strict=True) if self.way and each.way.is_same(self.way)]
        best_s = min(costs, default=0.0)
        is_slow = bool(used) and best_s <= min(QUICKER * used[0], used[0] - QUICKER_S)
        self._times = self._times + 1 if is_slow else 0
        if self._times < TIMES:
            return ""
        self._times, self._try_at = 0, now + REST_S
        path = f"The path to {name} takes {used[0] * 1e3:.1f} ms for every token, another one {best_s * 1e3:.1f} ms"
        return f"{path}: the ring moves to it."

    def _alike(self, direct: Sequence[NetworkPath]) -> list[NetworkPath]:
        used = self.way
        alike = [way for way in direct if used and way.is_alike(used)]
        return alike if used and len(alike) > 1 and _has(alike, used) else []


def _key(way: NetworkPath) -> tuple[str, str]:
    return way.host, way.interface


def _has(ways: Sequence[NetworkPath], wanted: NetworkPath) -> bool:
    return any(way.is_same(wanted) for way in ways)
