"""Who waits for a row: requests of other programs, in the order in which they came."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from core.errors import Busy


class _Waiting(NamedTuple):
    rows: int
    turn: asyncio.Future[None]


class WaitingLine:
    """As many run as there are `rows` now; `most` may wait, and the next one is sent away."""

    def __init__(self, most: int, rows: Callable[[], int]) -> None:
        self._most, self._rows = most, rows
        self._running = 0
        self._waiting: deque[_Waiting] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @asynccontextmanager
    async def turn(self, rows: int) -> AsyncIterator[None]:
        """Hold so many rows for as long as the block runs; whoever wants more than there are has all for himself.
        Raises Busy.
        """
        await self._wait(rows)
        try:
            yield
        finally:
            self._leave(rows)

    async def _wait(self, rows: int) -> None:
        if not self._waiting and self._has_room(rows):
            self._running += rows
            return
        if len(self._waiting) >= self._most:
            raise Busy(f"{self._most} requests wait already, which is as many as may.", "Ask again in a while.")
        mine = _Waiting(rows, asyncio.get_running_loop().create_future())
        self._waiting.append(mine)
        try:
            await mine.turn
        except asyncio.CancelledError:
            if mine in self._waiting:
                self._waiting.remove(mine)
                self._admit()
            else:
                self._leave(rows)
            raise

    def _leave(self, rows: int) -> None:
        self._running -= rows
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._has_room(self._waiting[0].rows):
            first = self._waiting.popleft()
            self._running += first.rows
            first.turn.set_result(None)

    def _has_room(self, rows: int) -> bool:
        return self._running == 0 or self._running + rows <= self._rows()
