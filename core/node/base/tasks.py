"""Work beside the rest: a part that fails says so in the log, and the node lives on."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from core.errors import MaclusterError
from core.node.base.journal import Journal


class Tasks:
    """Holds the tasks of a node until they are done."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it."""
        task = asyncio.create_task(self._guard(work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def stop(self) -> None:
        """Cancel what still runs."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except MaclusterError as error:
            self._journal.error(str(error))
