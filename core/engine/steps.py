"""Steps that count once even if their frames are sent again: the head's unanswered ones, and each other stage's
replies.

The head numbers its work. If no answer comes, or the ring was linked again, it resends all unanswered steps in order. A
stage that has done a step repeats its reply and computes nothing: its caches would be one token ahead. Each frame has
the lowest step that the head still waits for, so a stage knows which replies it may forget.
"""

from __future__ import annotations

from typing import Final, Generic, Literal, TypeVar

from core.errors import LinkTimeout, ProtocolError

TRIES: Final = 3
TRY_S: Final = 40.0

T = TypeVar("T")


class Outstanding(Generic[T]):
    """The head's side: unanswered work on the ring, in order. Times are seconds of one monotonic clock. It is sent up
    to `tries` times, `try_s` apart; any answer resets the count and the clock.
    """

    def __init__(self, tries: int, try_s: float) -> None:
        self._most_tries, self._try_s = tries, try_s
        self._out: dict[int, T] = {}
        self.next_step = 1
        self._tries = 0
        self._since = 0.0

    def __len__(self) -> int:
        return len(self._out)

    @property
    def base(self) -> int:
        """The lowest unanswered step; the next one if all are answered."""
        return next(iter(self._out), self.next_step)

    def values(self) -> list[T]:
        return list(self._out.values())

    def put(self, value: T, now: float) -> int:
        """Put `value` on the ring; returns its step number: 1, 2, 3, ..."""
        if not self._out:
            self._restart(now)
        step, self.next_step = self.next_step, self.next_step + 1
        self._out[step] = value
        return step

    def answered(self, step: int, now: float) -> T | None:
        """The value put as `step`; None if it was answered before. Raises ProtocolError for an unknown step, or if an
        earlier answer is missing: the ring is first in, first out, so that one was lost.
        """
        if not 0 < step < self.next_step:
            raise ProtocolError(f"An answer came to step {step}, which was never sent.")
        if step not in self._out:
            return None
        if step != self.base:
            raise ProtocolError(f"The answer to step {step} came, and none to step {self.base} before it.")
        self._restart(now)
        return self._out.pop(step)

    def due(self, now: float) -> list[tuple[int, T]]:
        """The unanswered work, if it must be resent now. Raises LinkTimeout after the last try."""
        deadline = self.deadline()
        return self.resend(now) if deadline is not None and now >= deadline else []

    def resend(self, now: float) -> list[tuple[int, T]]:
        """The unanswered work, to be resent over a newly linked ring. Raises LinkTimeout after the last try."""
        if self._out:
            self._tries += 1
            self._since = now
            if self._tries >= self._most_tries:
                raise LinkTimeout(f"The ring did not answer step {self.base} after {self._tries} tries.")
        return list(self._out.items())

    def deadline(self) -> float | None:
        """When to call `due`; None while nothing is out."""
        return self._since + self._try_s if self._out else None

    def clear(self) -> list[T]:
        lost = self.values()
        self._out.clear()
        return lost

    def _restart(self, now: float) -> None:
        self._tries, self._since = 0, now


class Replies(Generic[T]):
    """The side of any other stage. `last`: the last step it has done, 0 at first."""

    def __init__(self) -> None:
        self.last = 0
        self._kept: dict[int, T] = {}

    def judge(self, step: int, base: int) -> Literal["run", "repeat"]:
        """Decide about the frame of `step`, sent when the head waited for `base`. Raises ProtocolError if a step is
        missing before it, or the head has had its answer already.
        """
        if not base <= step <= self.last + 1:
            raise ProtocolError(f"Step {step} came after step {self.last}, while step {base} was the first one out.")
        return "run" if step > self.last else "repeat"

    def keep(self, step: int, reply: T, base: int) -> None:
        self.last = step
        self._kept[step] = reply
        for old in [old for old in self._kept if old < base]:
            del self._kept[old]

    def reply(self, step: int) -> T:
        if step not in self._kept:
            raise ProtocolError(f"Step {step} came once more, after the head had its answer.")
        return self._kept[step]

    def restart(self, base: int) -> None:
        """Forget everything: the next step is `base`."""
        self.last = base - 1
        self._kept.clear()
