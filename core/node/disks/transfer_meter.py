"""How far a transfer is, and how quick it was lately, told not too often."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Final, Literal

import msgspec

from core.errors import MaclusterError
from core.events import Transfer
from core.node.disks.ways import Stage

TRANSFER_EVERY_S: Final = 0.5
RATE_S: Final = 5.0

End = Literal["done", "failed", "stopped", "paused"]


class Meter:
    """Tells how far a transfer is, twice a second at most, and how fast it was lately."""

    def __init__(self, first: Transfer, publish: Callable[[Transfer], None]) -> None:
        self.now, self.publish = first, publish
        self._published_at = 0.0
        self._points: deque[tuple[float, int]] = deque()

    def count(self, state: Stage, done: int, total: int) -> None:
        """So many bytes are there."""
        at = monotonic()
        if state == self.now.state and at - self._published_at < TRANSFER_EVERY_S:
            return
        self._points.append((at, done))
        while at - self._points[0][0] > RATE_S:
            self._points.popleft()
        (since, before), self._published_at = self._points[0], at
        rate = max(0.0, (done - before) / (at - since)) if at > since else 0.0
        self.now = msgspec.structs.replace(self.now, state=state, done=done, total=total, bytes_per_s=rate)
        self.publish(self.now)

    def is_of(self, fingerprint: str) -> None:
        """It turned out which model it is."""
        self.now = msgspec.structs.replace(self.now, fingerprint=fingerprint)

    def comes_from(self, source: str) -> None:
        """From that Mac, or "" for the hub, from now on."""
        self.now = msgspec.structs.replace(self.now, source=source)

    def limited(self, bytes_per_s: int) -> None:
        """It comes no faster than that from now on."""
        self._points.clear()
        self.now = msgspec.structs.replace(self.now, limit_bytes_per_s=bytes_per_s)
        self.publish(self.now)

    def end(self, state: End, error: MaclusterError | None = None) -> None:
        """Nothing more comes, or nothing for a while."""
        problem = error.problem if error else None
        done = self.now.total if state == "done" else self.now.done
        self.now = msgspec.structs.replace(self.now, state=state, done=done, bytes_per_s=0.0, problem=problem)
        self.publish(self.now)
