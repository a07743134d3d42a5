"""When to call a pairing window that was seen; two Macs must not call at once, since a calling one refuses. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from core.address import Place
from core.trust.pairing import APART_S

GIVE_WAY_S: Final = 3.0


class PairingBackoff:
    """The Mac that `leads` calls as soon as it sees a window, the other one 3 s later in case the first can't connect.
    The same place is called again only when its window allows another attempt. Times: seconds, monotonic.
    """

    def __init__(self, *, leads: bool) -> None:
        self._wait_s = 0.0 if leads else GIVE_WAY_S
        self._not_before: dict[Place, float] = {}

    def due(self, windows: Iterable[Place], now_s: float) -> Place | None:
        return next((w for w in windows if now_s >= self._not_before.setdefault(w, now_s + self._wait_s)), None)

    def note(self, place: Place, now_s: float) -> None:
        self._not_before[place] = now_s + APART_S + self._wait_s
