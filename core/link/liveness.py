"""Pure state machines: which Macs are alive, and whether work progresses. Times are monotonic, in seconds.

This clock stops while a Mac sleeps. After a real sleep nothing seems late here; the other Macs have closed the links,
and they are dialled again. A late tick means that this process was stopped or starved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec

BEAT_S: Final = 0.5
RESTS: Final = 4  # times longer are beats, and silences that count, while nothing runs on both Macs of a link
SUSPECT_S: Final = 1.2
DEAD_S: Final = 2.5
LATE_S: Final = 1.0

# the second clock of security.md §4
STUCK_S: Final = 5.0
STUCK_TIMES: Final = 8
HUNG_S: Final = 30.0
HUNG_TIMES: Final = 24
WEIGHT: Final = 1 / 8


class Suspected(msgspec.Struct, frozen=True):
    """No frame from this Mac for `SUSPECT_S`, or `RESTS` times that at rest."""

    device_id: str


class Well(msgspec.Struct, frozen=True):
    """A suspected Mac responds again."""

    device_id: str


class Dead(msgspec.Struct, frozen=True):
    """No frame from this Mac for `DEAD_S`, or `RESTS` times that at rest; it is no longer watched."""

    device_id: str
    silence_s: float


class Slept(msgspec.Struct, frozen=True):
    """This process did not run in time, so silence of the others means nothing."""

    late_s: float


LivenessChange = Suspected | Well | Dead | Slept


class Liveness:
    """Judges linked Macs by their silence. When a link ends, call `remove`: that is certain at once.

    `due` is the time of the next tick: the next beat, or when a silence reaches its limit. A tick over `LATE_S` late
    restarts all clocks. So a Mac is suspected in an earlier tick before it is dead, and dead at the first punctual tick
    after `DEAD_S` of silence.
    """

    def __init__(self) -> None:
        self._seen_at: dict[str, float] = {}
        self._suspects: set[str] = set()
        self._resting: set[str] = set()
        self.due = math.inf

    @property
    def watched(self) -> list[str]:
        return list(self._seen_at)

    def is_suspect(self, device_id: str) -> bool:
        return device_id in self._suspects

    def add(self, device_id: str, now: float) -> None:
        """Watch a Mac with a new link, even if it had another one."""
        self.remove(device_id)
        self._seen_at[device_id] = now
        self.due = min(self.due, now + BEAT_S)

    def remove(self, device_id: str) -> None:
        self._seen_at.pop(device_id, None)
        self._suspects.discard(device_id)
        self._resting.discard(device_id)

    def pace(self, device_id: str, now: float, *, rests: bool) -> None:
        """Whether beats of that Mac are `RESTS` times slower. When they no longer are, its silence until now was right,
        unless it is suspected.
        """
        if rests:
            self._resting.add(device_id)
        elif device_id in self._resting:
            self._resting.discard(device_id)
            if device_id not in self._suspects:
                self.note_sign(device_id, now)

    def note_sign(self, device_id: str, now: float) -> None:
        if device_id in self._seen_at:
            self._seen_at[device_id] = now

    def tick(self, now: float) -> list[LivenessChange]:
        late_s = now - self.due
        changes: list[LivenessChange] = []
        if late_s > LATE_S:
            self._seen_at = dict.fromkeys(self._seen_at, now)
            changes.append(Slept(late_s))
        for device_id in self.watched:
            changes += self._judge(device_id, now)
        limits = [at + self._limit_s(mac, is_last=mac in self._suspects) for mac, at in self._seen_at.items()]
        beat_s = BEAT_S * (RESTS if self._resting and self._resting == self._seen_at.keys() else 1)
        # all loops of a node wake at multiples of their time, so at once
        self.due = min([(now // beat_s + 1) * beat_s, *limits])
        return changes

    def _limit_s(self, device_id: str, *, is_last: bool) -> float:
        return (DEAD_S if is_last else SUSPECT_S) * (RESTS if device_id in self._resting else 1)

    def _judge(self, device_id: str, now: float) -> list[LivenessChange]:
        seen_at, was_suspect = self._seen_at[device_id], device_id in self._suspects
        if now >= seen_at + self._limit_s(device_id, is_last=True):
            self.remove(device_id)
            return [Dead(device_id, now - seen_at)]
        is_suspect = now >= seen_at + self._limit_s(device_id, is_last=False)
        if is_suspect == was_suspect:
            return []
        if is_suspect:
            self._suspects.add(device_id)
            return [Suspected(device_id)]
        self._suspects.discard(device_id)
        return [Well(device_id)]


class ProgressClock:
    """Detects that steps stop coming back although every Mac answers pings.

    The expected time between steps is a running mean with weight 1/8 (as in RFC 6298): a median would call each chunk
    of a prompt stuck. Eight times this mean is at least the last completed wait.
    """

    def __init__(self) -> None:
        self._expected_s: float | None = None
        self._since: float | None = None
        self._has_moved = False

    def began(self, now: float) -> None:
        """Work started: a step is expected. A running clock continues."""
        if self._since is None:
            self._since, self._has_moved = now, False

    def moved(self, now: float) -> None:
        """A step came back and another is expected; an unexpected one is not used for the mean."""
        if self._since is not None:
            gap_s, mean_s = now - self._since, self._expected_s
            self._expected_s = gap_s if mean_s is None else mean_s + WEIGHT * (gap_s - mean_s)
        self._since, self._has_moved = now, True

    def rest(self) -> None:
        self._since = None

    def is_stuck(self, now: float) -> bool:
        return self._waits(now, STUCK_S, STUCK_TIMES)

    def is_dead(self, now: float) -> bool:
        """Whether to stop waiting. Never before the first step after a rest: a first chunk may take minutes."""
        return self._has_moved and self._waits(now, HUNG_S, HUNG_TIMES)

    def _waits(self, now: float, least_s: float, times: int) -> bool:
        limit_s = max(least_s, times * (self._expected_s or 0.0))
        return self._since is not None and now >= self._since + limit_s


def stuck_stage(steps: Sequence[int]) -> int | None:
    """First stage that did less than the one before it, by each stage's last step in ring order; or None."""
    return next((index for index, (before, own) in enumerate(pairwise(steps), 1) if own < before), None)
