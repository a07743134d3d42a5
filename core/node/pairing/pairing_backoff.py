"""When to knock at a pairing window that was seen, as pure logic: two Macs that wait for each other must not knock at
the same time, for each sends others away while it stands at a door.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from core.address import Place
from core.trust.pairing import APART_S

GIVE_WAY_S: Final = 3.0


class PairingBackoff:
    """The Mac that `leads` knocks as soon as it sees a window; the other one 3 s later, for the case that nothing gets
    through to it. At one place not again before the window there takes another attempt. Times in seconds of one
    monotonic clock.
    """

    def __init__(self, *, leads: bool) -> None:
        self._wait_s = 0.0 if leads else GIVE_WAY_S
        self._not_before: dict[Place, float] = {}

    def due(self, windows: Iterable[Place], now_s: float) -> Place | None:
        """Where to knock now, if anywhere."""
        return next((w for w in windows if now_s >= self._not_before.setdefault(w, now_s + self._wait_s)), None)

    def note(self, place: Place, now_s: float) -> None:
        """This Mac knocks there."""
        self._not_before[place] = now_s + APART_S + self._wait_s
