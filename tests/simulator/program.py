"""A worker process as its node sees it: pipes and exit status."""

from __future__ import annotations

import asyncio
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING

from core.pipe_messages import LENGTH, pack
from core.worker.messages import Report, unpack_command
from tests.simulator.loop import Process

if TYPE_CHECKING:
    from tests.simulator.worker import Worker

NUMBERS = count(1 << 23)  # above every real process id


class Program:
    """Replaces the process of `asyncio.create_subprocess_exec`: the worker's pipes and exit status."""

    def __init__(self, node: Process, worker: Worker) -> None:
        self._node, self._worker = node, worker
        self._is_closing = False
        self._waiting: list[asyncio.Future[None]] = []
        self.pid, self.returncode = next(NUMBERS), None
        self.stdout, self.stderr = (asyncio.StreamReader(loop=asyncio.get_running_loop()) for _ in range(2))
        self.stdin = SimpleNamespace(write=self._write, close=self._close, is_closing=lambda: self._is_closing)

    async def wait(self) -> int | None:
        while self.returncode is None:
            self._waiting.append(asyncio.get_running_loop().create_future())
            await self._waiting[-1]
        return self.returncode

    def kill(self) -> None:
        self._worker.die(-9)

    def say(self, report: Report) -> None:
        """Write to the node, as the worker."""
        self._node.soon(self.stdout.feed_data, pack(report), after=0.0001)

    def ended(self, code: int) -> None:
        """End the process with that status."""
        self._node.soon(self._ended, code, after=0.0002)

    def _ended(self, code: int) -> None:
        self.returncode = code  # type: ignore[assignment]
        self.stdout.feed_eof()
        self.stderr.feed_eof()
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    def _write(self, data: bytes) -> None:
        self._worker.process.soon(self._worker.hear, unpack_command(data[LENGTH.size :]), after=0.0001)

    def _close(self) -> None:
        self._is_closing = True
        self._worker.process.soon(self._worker.die, 0, after=self._worker.exit_s)
