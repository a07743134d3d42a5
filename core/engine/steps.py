"""Steps that count once, however often their frames travel: what the head has out, and what each other stage replied.

The head numbers what it puts on the ring. Where no answer comes, or the ring was linked anew, it sends all that is out
once more, in order. A stage that has done a step already repeats its reply and computes nothing: its caches would be
one token ahead. Each frame tells the lowest step that the head still waits for, so a stage knows what it may forget.
"""

from __future__ import annotations

from typing import Final, Generic, Literal, TypeVar

from core.errors import LinkTimeout, ProtocolError

TRIES: Final = 3
TRY_S: Final = 40.0

T = TypeVar("T")


class Outstanding(Generic[T]):
    """The head's side: what was put on the ring and not answered, in order. Times in seconds of one monotonic clock.

    What is out is sent `tries` times at most, `try_s` apart; any answer starts that count and that clock anew.
    """

    def __init__(self, tries: int, try_s: float) -> None:
        self._most_tries, self._try_s = tries, try_s
        self._out: dict[int, T] = {}
        self._next = 1
        self._tries = 0
        self._since = 0.0

    def __len__(self) -> int:
        return len(self._out)

    @property
    def base(self) -> int:
        """The lowest step that was not answered; the next one where none is out."""
        return next(iter(self._out), self._next)

    @property
    def next_step(self) -> int:
        """The number that `put` gives next."""
        return self._next

    def values(self) -> list[T]:
        """All that is out, in order."""
        return list(self._out.values())

    def put(self, value: T, now: float) -> int:
        """`value` goes on the ring; gives the number of its step: 1, 2, 3, ..."""
        if not self._out:
            self._restart(now)
        step, self._next = self._next, self._next + 1
        self._out[step] = value
        return step

    def answered(self, step: int, now: float) -> T | None:
        """What was put as `step`; None where it was answered before. Raises ProtocolError for one never put, and for an
        answer that overtook another: the ring is first in, first out, so that one was lost.
        """
        if not 0 < step < self._next:
            raise ProtocolError(f"An answer came to step {step}, which was never sent.")
        if step not in self._out:
            return None
        if step != self.base:
            raise ProtocolError(f"The answer to step {step} came, and none to step {self.base} before it.")
        self._restart(now)
        return self._out.pop(step)

    def due(self, now: float) -> list[tuple[int, T]]:
        """All that is out, if it must be sent once more now. Raises LinkTimeout the last time."""
        deadline = self.deadline()
        return self.resend(now) if deadline is not None and now >= deadline else []

    def resend(self, now: float) -> list[tuple[int, T]]:
        """All that is out, to be sent once more over a ring that was linked again. Raises LinkTimeout the last time."""
        if self._out:
            self._tries += 1
            self._since = now
            if self._tries >= self._most_tries:
                raise LinkTimeout(f"The ring was sent step {self.base} {self._tries} times and did not answer.")
        return list(self._out.items())

    def deadline(self) -> float | None:
        """When `due` is worth a look; None while nothing is out."""
        return self._since + self._try_s if self._out else None

    def clear(self) -> list[T]:
        """Give up what is out: what was lost, in order. The numbers go on."""
        lost = self.values()
        self._out.clear()
        return lost

    def _restart(self, now: float) -> None:
        self._tries, self._since = 0, now


class Replies(Generic[T]):
    """Any other stage's side. `last`: the last step it has done, 0 at first."""

    def __init__(self) -> None:
        self.last = 0
        self._kept: dict[int, T] = {}

    def judge(self, step: int, base: int) -> Literal["run", "repeat"]:
        """What to do with the frame of `step`, sent when the head waited for `base`. Raises ProtocolError where a step
        is missing before it, or the head says that it was answered already.
        """
        if not base <= step <= self.last + 1:
            raise ProtocolError(f"Step {step} came after step {self.last}, while step {base} was the first one out.")
        return "run" if step > self.last else "repeat"

    def keep(self, step: int, reply: T, base: int) -> None:
        """`step` was run and `reply` was passed on; what lies below `base` is forgotten."""
        self.last = step
        self._kept[step] = reply
        for old in [old for old in self._kept if old < base]:
            del self._kept[old]

    def reply(self, step: int) -> T:
        """The reply that was passed on for `step`. Raises ProtocolError where that was forgotten."""
        if step not in self._kept:
            raise ProtocolError(f"Step {step} came once more, after the head had its answer.")
        return self._kept[step]

    def restart(self, base: int) -> None:
        """Forget everything: the next step is `base`."""
        self.last = base - 1
        self._kept.clear()
