"""Progress of the answers that new workers read again. Pure, with the clock passed in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

QUIET_S: Final = 2.0


class Rereading:
    """Counts the tokens prefilled for the answers that ran when the ring was ready again. An answer counts until its
    next token. Queued answers would hold this up: once one continues and nothing was read for `QUIET_S`, it no longer
    waits for the rest.
    """

    def __init__(self) -> None:
        self.since: float | None = None  # when the ring was ready; None before and after
        self._sizes: dict[str, int] = {}
        self._done: dict[str, int] = {}
        self._moved_at = 0.0
        self._goes_on = False
        self.has_news = False  # not shown yet

    def begin(self, answers: Mapping[str, tuple[int, int]], now: float) -> None:
        self._sizes = {request: sum(counts) for request, counts in answers.items()}
        self._done = dict.fromkeys(answers, 0)
        self.since, self._moved_at, self._goes_on = now, now, False

    def stop(self) -> None:
        self.since = None
        self._done.clear()

    def read(self, request_id: str, done: int, now: float) -> None:
        """Note that `done` tokens of an answer were read."""
        if request_id in self._done:
            self._done[request_id], self._moved_at, self.has_news = min(done, self._sizes[request_id]), now, True

    def wrote(self, request_id: str, now: float) -> None:
        if self.since is not None:
            self._goes_on = True
            if self._done.pop(request_id, None) is not None:
                self._moved_at = now

    def keep(self, answers: Mapping[str, tuple[int, int]]) -> None:
        self._done = {request: done for request, done in self._done.items() if request in answers}

    def is_over(self, now: float) -> bool:
        return self.since is not None and (not self._done or (self._goes_on and now > self._moved_at + QUIET_S))

    @property
    def done(self) -> int:
        return sum(self._done.values())

    @property
    def total(self) -> int:
        return sum(self._sizes[request] for request in self._done)

    def eta_s(self, now: float) -> float | None:
        """Seconds left at the speed so far; None before the first tokens."""
        if self.since is None or not self.done:
            return None
        return (self.total - self.done) * (now - self.since) / self.done
