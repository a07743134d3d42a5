"""Who waits for a row: requests of other programs, in the order in which they came."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

from core.errors import Busy


class _InLine(NamedTuple):
    rows: int
    model: str
    turn: asyncio.Future[None]


class RequestQueue:
    """As many run as there are `rows` now, all of one model: who wants another one has the line for himself first.
    `most` may wait, and the next one is sent away.
    """

    def __init__(self, most: int, rows: Callable[[], int]) -> None:
        self._most, self._rows = most, rows
        self._running, self._model = 0, ""
        self._waiting: deque[_InLine] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @asynccontextmanager
    async def turn(self, rows: int, model: str) -> AsyncIterator[None]:
        """Hold so many rows for as long as the block runs; whoever wants more than there are has all for himself.
        Raises Busy.
        """
        await self._wait(rows, model)
        try:
            yield
        finally:
            self._leave(rows)

    def look(self) -> None:
        """There may be more rows than before."""
        self._admit()

    async def _wait(self, rows: int, model: str) -> None:
        if not self._waiting and self._has_room(rows, model):
            self._enter(rows, model)
            return
        if len(self._waiting) >= self._most:
            raise Busy(f"{self._most} requests wait already, which is as many as may.", "Ask again in a while.")
        mine = _InLine(rows, model, asyncio.get_running_loop().create_future())
        self._waiting.append(mine)
        try:
            await mine.turn
        except asyncio.CancelledError:
            if mine.turn.cancelled():
                with suppress(ValueError):  # `_admit` may have passed it over
                    self._waiting.remove(mine)
                self._admit()
            else:
                self._leave(rows)
            raise

    def _leave(self, rows: int) -> None:
        self._running -= rows
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._has_room(self._waiting[0].rows, self._waiting[0].model):
            first = self._waiting.popleft()
            if not first.turn.cancelled():  # who goes away notices a moment later
                self._enter(first.rows, first.model)
                first.turn.set_result(None)

    def _enter(self, rows: int, model: str) -> None:
        self._running, self._model = self._running + rows, model

    def _has_room(self, rows: int, model: str) -> bool:
        return self._running == 0 or (model == self._model and self._running + rows <= self._rows())
