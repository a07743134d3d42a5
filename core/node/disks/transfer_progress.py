"""A transfer to this Mac's disk: what is wanted, its rate limit, and its progress."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic, time
from typing import Final, Literal

import msgspec

from core.errors import MaclusterError
from core.events import Transfer, Value
from core.models.files.byte_rate_limit import ByteRateLimit
from core.rates import Throttle
from core.requests.disks import DownloadRequest

PUBLISH_EVERY_S: Final = 0.5
RATE_S: Final = 5.0

TransferPhase = Literal["running", "checking"]
EndState = Literal["done", "failed", "stopped", "paused"]
# phase, bytes there, bytes wanted
Report = Callable[[TransferPhase, int, int], None]


class QueuedTransfer(Value, frozen=True, kw_only=True):
    """A download, or a copy of the model named by `first`. A paused one is kept in a file for the next node."""

    first: Transfer  # its state when it starts or resumes, with its rate limit
    download: DownloadRequest | None = None
    # for a copy: by file (begin, end) of the wanted ranges, with all settings; empty: all files
    parts: dict[str, tuple[tuple[int, int], ...]] = msgspec.field(default_factory=dict)
    asked_by: str = ""  # device id of the requesting Mac, "" for this one


class TransferProgress:
    """Keeps the Transfer event of one transfer, and publishes it at most every PUBLISH_EVERY_S seconds.

    `publish` gets it with the requesting Mac.
    """

    def __init__(self, queued: QueuedTransfer, publish: Callable[[Transfer, str], None]) -> None:
        self.queued, self.now, self._publish = queued, queued.first, publish
        self.limit = ByteRateLimit(queued.first.limit_bytes_per_s)
        self._throttle = Throttle(PUBLISH_EVERY_S)
        self._points: deque[tuple[float, int]] = deque()

    def count(self, phase: TransferPhase, done: int, total: int) -> None:
        at = monotonic()
        if not self._throttle.take(at) and phase == self.now.state:
            return
        self._points.append((at, done))
        while at - self._points[0][0] > RATE_S:
            self._points.popleft()
        since, before = self._points[0]
        rate = max(0.0, (done - before) / (at - since)) if at > since else 0.0
        waits_until = self.now.waits_until if self.now.waits_until > time() else 0.0
        self.publish(state=phase, done=done, total=total, bytes_per_s=rate, waits_until=waits_until)

    def wait(self, until: float) -> None:
        """Record that the hub takes no request before `until`."""
        self.publish(waits_until=until)

    def publish(self, **fields: object) -> None:
        self.update(**fields)
        self._publish(self.now, self.queued.asked_by)

    def update(self, **fields: object) -> None:
        """Change fields of the event, to be published with the next one."""
        self.now = msgspec.structs.replace(self.now, **fields)

    def limited(self, bytes_per_s: int) -> None:
        self.limit.change(bytes_per_s)
        self._points.clear()
        self.publish(limit_bytes_per_s=bytes_per_s)

    def end(self, state: EndState, error: MaclusterError | None = None) -> None:
        done = self.now.total if state == "done" else self.now.done
        problem = error.problem if error else None
        self.publish(state=state, done=done, bytes_per_s=0.0, waits_until=0.0, problem=problem)
