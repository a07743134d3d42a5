"""The tokenizer of the loaded model, restarted when its process ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from core.errors import MaclusterError


class Ends(Protocol):
    """A process, or several."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""

    async def end(self) -> None:
        """End it, and wait."""


Read = TypeVar("Read", bound=Ends)


class ModelTokenizer(Generic[Read]):
    """Starts a tokenizer process once for a model, and again if it has ended."""

    def __init__(self, start: Callable[[Path], Awaitable[Read]]) -> None:
        self._start = start
        self._directory = Path()
        self._reading: asyncio.Future[Read] | None = None
        self._endings: set[asyncio.Task[None]] = set()

    async def read(self, directory: Path) -> None:
        """Read the tokenizer of the model in `directory`; one that was read and not forgotten stays."""
        if directory != self._directory:
            self.forget()
        self._directory = directory
        await asyncio.shield(self.now() or self._read())

    def now(self) -> asyncio.Future[Read] | None:
        """The tokenizer, read or being read (shield it while you wait); None if no model is loaded."""
        if (reading := self._reading) is None:
            return None
        has_ended = reading.done() and (reading.exception() or reading.result().is_over)
        return self._read() if has_ended else reading

    def forget(self) -> None:
        reading, self._reading = self._reading, None
        if reading:
            ending = asyncio.ensure_future(_end(reading))
            self._endings.add(ending)
            ending.add_done_callback(self._endings.discard)

    async def close(self) -> None:
        self.forget()
        if self._endings:
            await asyncio.wait(self._endings)

    def _read(self) -> asyncio.Future[Read]:
        self.forget()
        self._reading = asyncio.ensure_future(self._start(self._directory))
        return self._reading


async def _end(reading: asyncio.Future[Read]) -> None:
    with suppress(MaclusterError):  # its users got the error
        await (await reading).end()
