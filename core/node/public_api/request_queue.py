"""The queue of API requests that wait for a row."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from math import ceil
from time import monotonic
from typing import Final, NamedTuple

from core.errors import Busy

MAX_RETRY_S: Final = 60  # clients ignore longer waits


class _QueuedRequest(NamedTuple):
    rows: int
    model: str
    since: float  # monotonic seconds
    turn: asyncio.Future[None]


class RequestQueue:
    """Runs up to `rows()` requests, all of one model. A request for another model waits until nothing runs. At most
    `max_waiting` wait; then Busy.
    """

    def __init__(self, max_waiting: int, rows: Callable[[], int]) -> None:
        self._max_waiting, self._rows = max_waiting, rows
        self._running, self._model = 0, ""
        self._waiting: deque[_QueuedRequest] = deque()
        self._waited_s = 0.0  # by the last request that got its turn

    def __len__(self) -> int:
        return len(self._waiting)

    @asynccontextmanager
    async def turn(self, rows: int, model: str) -> AsyncIterator[None]:
        """Hold `rows` rows for the length of the block; more rows than there are hold all of them. Raises Busy."""
        await self._wait(rows, model)
        try:
            yield
        finally:
            self._leave(rows)

    async def _wait(self, rows: int, model: str) -> None:
        if not self._waiting and self._has_room(rows, model):
            self._enter(rows, model)
            return
        if len(self._waiting) >= self._max_waiting:
            raise self._full()
        mine = _QueuedRequest(rows, model, monotonic(), asyncio.get_running_loop().create_future())
        self._waiting.append(mine)
        try:
            await mine.turn
        except asyncio.CancelledError:
            if mine.turn.cancelled():
                with suppress(ValueError):  # `look` may have passed it over
                    self._waiting.remove(mine)
                self.look()
            else:
                self._leave(rows)
            raise

    def _full(self) -> Busy:
        """The refusal, to be tried again after as long as requests wait here."""
        error = Busy(f"The queue is full: {self._max_waiting} requests wait.", "Try again later.")
        longest_s = monotonic() - self._waiting[0].since if self._waiting else 0.0
        error.retry_s = min(MAX_RETRY_S, max(1, ceil(max(longest_s, self._waited_s))))
        return error

    def _leave(self, rows: int) -> None:
        self._running -= rows
        self.look()

    def look(self) -> None:
        while self._waiting and self._has_room(self._waiting[0].rows, self._waiting[0].model):
            first = self._waiting.popleft()
            if not first.turn.cancelled():  # a cancelled request notices a moment later
                self._waited_s = monotonic() - first.since
                self._enter(first.rows, first.model)
                first.turn.set_result(None)

    def _enter(self, rows: int, model: str) -> None:
        self._running, self._model = self._running + rows, model

    def _has_room(self, rows: int, model: str) -> bool:
        return self._running == 0 or (model == self._model and self._running + rows <= self._rows())
