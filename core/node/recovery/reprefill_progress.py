"""How far the answers are that new workers read again: pure, with the clock passed in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

QUIET_S: Final = 2.0


class ReprefillProgress:
    """The answers that were under way when the ring was ready again, `since` then; None: it is not yet, or no more.

    Each counts until its next token is there. Those that wait for others to end would hold this up for as long as they
    wait: once one goes on and nothing was read for a while, no more is waited for.
    """

    def __init__(self) -> None:
        self.since: float | None = None
        self._sizes: dict[str, int] = {}
        self._done: dict[str, int] = {}
        self._moved_at = 0.0
        self._goes_on = False

    def begin(self, answers: Mapping[str, tuple[int, int]], now: float) -> None:
        """The ring is ready to read `answers`: tokens of the prompt, and those that are written."""
        self._sizes = {request: sum(counts) for request, counts in answers.items()}
        self._done = dict.fromkeys(answers, 0)
        self.since, self._moved_at, self._goes_on = now, now, False

    def stop(self) -> None:
        """Nothing is read."""
        self.since = None
        self._done.clear()

    def read(self, request_id: str, done: int, now: float) -> bool:
        """So many tokens of an answer were read; whether that concerns this."""
        if request_id not in self._done:
            return False
        self._done[request_id], self._moved_at = done, now
        return True

    def wrote(self, request_id: str, now: float) -> None:
        """An answer goes on."""
        if self.since is not None:
            self._goes_on = True
            if self._done.pop(request_id, None) is not None:
                self._moved_at = now

    def keep(self, answers: Mapping[str, tuple[int, int]]) -> None:
        """Those that are not among `answers` have ended."""
        self._done = {request: done for request, done in self._done.items() if request in answers}

    def is_over(self, now: float) -> bool:
        """Whether all go on that will soon."""
        return self.since is not None and (not self._done or (self._goes_on and now > self._moved_at + QUIET_S))

    @property
    def done(self) -> int:
        """Tokens read so far, of those that are still read."""
        return sum(self._done.values())

    @property
    def total(self) -> int:
        """Tokens to read in all, of those that are still read."""
        return sum(self._sizes[request] for request in self._done)

    def eta_s(self, now: float) -> float | None:
        """Seconds that are left at the pace so far; None where there is none yet."""
        if self.since is None or not self.done:
            return None
        return (self.total - self.done) * (now - self.since) / self.done
