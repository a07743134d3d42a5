"""Who lives, and whether work moves: pure state machines. Times are seconds of one monotonic clock, passed in.

That clock stands still while a Mac sleeps (macOS: mach_absolute_time; Linux: CLOCK_MONOTONIC). So after a real sleep
nothing seems late here: the others have dropped this Mac by then, its links end, and they are dialled anew. What comes
late is a process that was stopped, or a Mac that was too busy to run it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec

BEAT_S: Final = 0.5
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
    """Nothing was heard from this Mac for `SUSPECT_S`."""

    device_id: str


class Well(msgspec.Struct, frozen=True):
    """A Mac that was suspected is heard again."""

    device_id: str


class Dead(msgspec.Struct, frozen=True):
    """Nothing was heard from this Mac for `DEAD_S`: it is watched no more."""

    device_id: str
    silence_s: float


class Slept(msgspec.Struct, frozen=True):
    """This process did not run when it should have: what it did not hear says nothing of the others."""

    late_s: float


LivenessChange = Suspected | Well | Dead | Slept


class Liveness:
    """Judges the Macs that are linked by their silence. A link that ends says more, and at once: then `remove`.

    `due`: when the next tick should come, a beat later or as soon as a silence reaches its limit. A tick that comes
    more than `LATE_S` late restarts every clock instead of blaming the others. So no Mac is dead that was not suspected
    in a tick before, and each is dead at the first punctual tick after `DEAD_S` of silence.
    """

    def __init__(self) -> None:
        self._seen_at: dict[str, float] = {}
        self._suspects: set[str] = set()
        self.due = math.inf

    @property
    def watched(self) -> list[str]:
        """The Macs to ping with every tick."""
        return list(self._seen_at)

    def is_suspect(self, device_id: str) -> bool:
        """Whether a Mac that is watched is silent."""
        return device_id in self._suspects

    def add(self, device_id: str, now: float) -> None:
        """Watch a Mac whose link is new, even where it has had another one."""
        self.remove(device_id)
        self._seen_at[device_id] = now
        self.due = min(self.due, now + BEAT_S)

    def remove(self, device_id: str) -> None:
        """Its link ended."""
        self._seen_at.pop(device_id, None)
        self._suspects.discard(device_id)

    def note_sign(self, device_id: str, now: float) -> None:
        """A frame came from this Mac, whatever was in it; of one that is not watched it says nothing."""
        if device_id in self._seen_at:
            self._seen_at[device_id] = now

    def tick(self, now: float) -> list[LivenessChange]:
        """What has changed, each change once."""
        late_s = now - self.due
        changes: list[LivenessChange] = []
        if late_s > LATE_S:
            self._seen_at = dict.fromkeys(self._seen_at, now)
            changes.append(Slept(late_s))
        for device_id in self.watched:
            changes += self._judge(device_id, now)
        limits = [at + (DEAD_S if mac in self._suspects else SUSPECT_S) for mac, at in self._seen_at.items()]
        self.due = min([now + BEAT_S, *limits])
        return changes

    def _judge(self, device_id: str, now: float) -> list[LivenessChange]:
        seen_at, was_suspect = self._seen_at[device_id], device_id in self._suspects
        if now >= seen_at + DEAD_S:
            self.remove(device_id)
            return [Dead(device_id, now - seen_at)]
        is_suspect = now >= seen_at + SUSPECT_S
        if is_suspect == was_suspect:
            return []
        if is_suspect:
            self._suspects.add(device_id)
            return [Suspected(device_id)]
        self._suspects.discard(device_id)
        return [Well(device_id)]


class ProgressClock:
    """Whether work moves that should: every Mac may answer its pings, and still no step comes back.

    What is to be expected between two moves is their running mean, in which a new one counts 1/8 (as in RFC 6298). A
    median of steps would call every chunk of the next prompt stuck, which takes a hundred times as long, until half of
    what it looks at are chunks. Of this mean eight times are at least the last wait that ended well, so that is not
    called stuck again; and a single long one is forgotten after a dozen or two of steps.
    """

    def __init__(self) -> None:
        self._expected_s: float | None = None
        self._since: float | None = None
        self._has_moved = False

    def began(self, now: float) -> None:
        """Something is under way: a move is expected. Where one was expected already, its clock runs on."""
        if self._since is None:
            self._since, self._has_moved = now, False

    def moved(self, now: float) -> None:
        """A step came back, and another one is expected; nothing is learnt of one that came unexpected."""
        if self._since is not None:
            gap_s, mean_s = now - self._since, self._expected_s
            self._expected_s = gap_s if mean_s is None else mean_s + WEIGHT * (gap_s - mean_s)
        self._since, self._has_moved = now, True

    def rest(self) -> None:
        """Nothing is expected any more, until something has begun again."""
        self._since = None

    def is_stuck(self, now: float) -> bool:
        """Whether a person should be told that nothing moves."""
        return self._waits(now, STUCK_S, STUCK_TIMES)

    def is_dead(self, now: float) -> bool:
        """Whether to wait no longer. Never before anything has moved since the rest: the first chunk of a prompt may
        take minutes, also where the one before was short.
        """
        return self._has_moved and self._waits(now, HUNG_S, HUNG_TIMES)

    def _waits(self, now: float, least_s: float, times: int) -> bool:
        limit_s = max(least_s, times * (self._expected_s or 0.0))
        return self._since is not None and now >= self._since + limit_s


def stuck_stage(steps: Sequence[int]) -> int | None:
    """Where work lies that does not come back: the first stage that has finished less than the one before it. `steps`:
    the last step that each finished, in ring order, the head first. None if there is none: then it is the head's turn,
    or a frame was lost.
    """
    return next((index for index, (before, own) in enumerate(pairwise(steps), 1) if own < before), None)
