"""From where a model comes: of linked Macs or of the hub, as quick as each was seen to be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import Final, Literal

from core.settings import MIB

MEASURED_BYTES: Final = 16 * MIB

Stage = Literal["running", "checking"]
Report = Callable[[Stage, int, int], None]
Way = Literal["macs", "hub"]


class RateMeter:
    """How fast the bytes came that were counted, none for what was too few to tell."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._begun_at, self._first, self._last = monotonic(), -1, 0

    def count(self, stage: Stage, done: int, total: int) -> None:
        """So many are there."""
        if stage == "running":
            self._first = done if self._first < 0 else self._first
            self._last = done
        self._report(stage, done, total)

    @property
    def rate(self) -> float:
        """Bytes a second, 0 where that cannot be said."""
        came = self._last - self._first
        return came / max(monotonic() - self._begun_at, 0.001) if came >= MEASURED_BYTES else 0.0


def in_order(ways: Iterable[Way], rates: Mapping[Way, float]) -> list[Way]:
    """Linked Macs first, unless the hub was faster than they were."""
    is_hub_faster = "macs" in rates and rates.get("hub", 0.0) > rates["macs"]
    return sorted(ways, key=lambda way: (way == "hub") != is_hub_faster)
