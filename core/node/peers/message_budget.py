"""How often another Mac may speak on its control link before it has to wait: this one has others to attend to."""

from __future__ import annotations

from typing import Final, NamedTuple

from core.link.frames import FrameType


class Rate(NamedTuple):
    """So many messages a second, and so many at once."""

    per_s: float
    burst: float


BEATS: Final = Rate(20.0, 40.0)  # an honest Mac sends two pings a second
OTHERS: Final = Rate(500.0, 1000.0)
LOGS: Final = Rate(4.0, 8.0)  # it asks once a second, and answers as often
RATES: Final = {FrameType.PING: BEATS, FrameType.PONG: BEATS, FrameType.ROSTER: BEATS, FrameType.LOG: LOGS}
# files, answers and tests are as fast as the network; each is asked for, and whoever asks is bounded there
FREE: Final = frozenset(
    {FrameType.COPY, FrameType.FILE_PART, FrameType.PROBE, FrameType.RELAY_REPLY, FrameType.SPEED_TEST}
)


class MessageBudget:
    """Of one peer: a token bucket for each kind of frame. Times in seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._left: dict[FrameType, tuple[float, float]] = {}

    def spend(self, kind: FrameType, now: float) -> float:
        """One such frame came: after how many seconds the next one of the peer may be read."""
        if kind in FREE:
            return 0.0
        rate = RATES.get(kind, OTHERS)
        left, at = self._left.get(kind, (rate.burst, now))
        left = min(rate.burst, left + (now - at) * rate.per_s) - 1
        self._left[kind] = left, now
        return max(0.0, -left / rate.per_s)
