"""The tokenizer of the model that is loaded, or is being loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from core.errors import MaclusterError
from core.node.answers.tokenizer_process import TokenizerProcess

Reading = asyncio.Future[TokenizerProcess]


class ModelTokenizer:
    """Read once for a model, by a process that is started by `start`, and anew where that process has ended."""

    def __init__(self, start: Callable[[Path], Awaitable[TokenizerProcess]]) -> None:
        self._start = start
        self._directory = Path()
        self._reading: Reading | None = None
        self._endings: set[asyncio.Task[None]] = set()

    async def read(self, directory: Path) -> None:
        """Until that of the model in `directory` is read. Raises BadModel."""
        self._directory = directory
        await asyncio.shield(self._read())

    def now(self) -> Reading | None:
        """What is read or being read, which whoever waits for it shields; None where no model is loaded."""
        if (reading := self._reading) is None:
            return None
        has_ended = reading.done() and (reading.exception() or reading.result().is_over)
        return self._read() if has_ended else reading

    def forget(self) -> None:
        """End the process that has read it, or is reading."""
        reading, self._reading = self._reading, None
        if reading:
            ending = asyncio.ensure_future(_end(reading))
            self._endings.add(ending)
            ending.add_done_callback(self._endings.discard)

    async def close(self) -> None:
        """Until no process is left."""
        self.forget()
        if self._endings:
            await asyncio.wait(self._endings)

    def _read(self) -> Reading:
        self.forget()
        self._reading = asyncio.ensure_future(self._start(self._directory))
        return self._reading


async def _end(reading: Reading) -> None:
    with suppress(MaclusterError):  # whoever waited for it was told
        await (await reading).end()
