"""Forces token logs to disk in a thread, since a busy disk may take a quarter of a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from core.node.answers.running_answer import RunningAnswer
from core.node.base.tasks import Tasks

SYNC_S: Final = 1.0
SYNC_EVERY_TOKENS: Final = 16


class LogSync:
    """Syncs the logs of running answers every second, or after 16 tokens. Logs are synced one at a time, so what is on
    disk of an answer only grows.
    """

    def __init__(
        self, running: Mapping[str, RunningAnswer], tasks: Tasks, fail: Callable[[RunningAnswer, OSError], None]
    ) -> None:
        self._running, self._tasks, self._fail = running, tasks, fail  # `fail` gets a log that could not be synced
        self._is_due = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    def written(self, answer: RunningAnswer) -> None:
        if answer.log.unsynced >= SYNC_EVERY_TOKENS:
            self._is_due.set()
        if self._work is None or self._work.done():
            self._work = self._tasks.spawn("Writing the token logs", self._sync())

    async def _sync(self) -> None:
        while any(answer.log.unsynced for answer in self._running.values()):
            with suppress(TimeoutError):
                async with asyncio.timeout(SYNC_S):
                    await self._is_due.wait()
            self._is_due.clear()
            for answer in list(self._running.values()):
                if self._is_running(answer) and answer.log.unsynced:  # it may have ended meanwhile
                    await self._force(answer)

    async def _force(self, answer: RunningAnswer) -> None:
        try:
            await asyncio.to_thread(answer.log.syncing())
        except OSError as error:
            if self._is_running(answer):
                self._fail(answer, error)

    def _is_running(self, answer: RunningAnswer) -> bool:
        return self._running.get(answer.request_id) is answer
