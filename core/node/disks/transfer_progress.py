"""Progress of a transfer: bytes received and recent rate."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Final, Literal

import msgspec

from core.errors import MaclusterError
from core.events import Transfer
from core.rates import Throttle

PUBLISH_EVERY_S: Final = 0.5
RATE_S: Final = 5.0

TransferPhase = Literal["running", "checking"]
EndState = Literal["done", "failed", "stopped", "paused"]
# phase, bytes there, bytes wanted
Report = Callable[[TransferPhase, int, int], None]


class TransferProgress:
    """Keeps the Transfer event of one transfer, and publishes it at most every PUBLISH_EVERY_S seconds."""

    def __init__(self, first: Transfer, publish: Callable[[Transfer], None]) -> None:
        self.now, self.publish = first, publish
        self._throttle = Throttle(PUBLISH_EVERY_S)
        self._points: deque[tuple[float, int]] = deque()

    def count(self, phase: TransferPhase, done: int, total: int) -> None:
        """Record the bytes received."""
        at = monotonic()
        if not self._throttle.take(at) and phase == self.now.state:
            return
        self._points.append((at, done))
        while at - self._points[0][0] > RATE_S:
            self._points.popleft()
        since, before = self._points[0]
        rate = max(0.0, (done - before) / (at - since)) if at > since else 0.0
        self.update(state=phase, done=done, total=total, bytes_per_s=rate)
        self.publish(self.now)

    def update(self, **fields: object) -> None:
        """Change fields of the event, to be published with the next one."""
        self.now = msgspec.structs.replace(self.now, **fields)

    def limited(self, bytes_per_s: int) -> None:
        self._points.clear()
        self.update(limit_bytes_per_s=bytes_per_s)
        self.publish(self.now)

    def end(self, state: EndState, error: MaclusterError | None = None) -> None:
        """Publish that the transfer ended or paused."""
        done = self.now.total if state == "done" else self.now.done
        self.update(state=state, done=done, bytes_per_s=0.0, problem=error.problem if error else None)
        self.publish(self.now)
