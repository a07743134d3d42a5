"""Follows one node's events and waits for conditions on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from core.errors import LinkTimeout, MaclusterError, NodeUnreachable
from core.events import AnyEvent, Snapshot
from core.settings import Home
from core.snapshot import apply
from tui.client import NodeClient

RETRY_S = 0.1
ATTACH_S = 5.0
LOAD_S = 300.0


class Watch:
    """A client with the snapshot of its events. Use as an async context manager."""

    def __init__(self, home: Home, on_event: Callable[[AnyEvent], None] = lambda _: None) -> None:
        self.client = NodeClient(home)
        self.now = Snapshot()
        self.seen: list[AnyEvent] = []
        self._on_event = on_event
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._attached = False
        self._error: MaclusterError | None = None

    async def __aenter__(self) -> Watch:
        await self.client.__aenter__()
        self._task = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.client.__aexit__()

    async def attached(self, timeout_s: float, alive: Callable[[], bool] = lambda: False) -> None:
        """Wait for the first snapshot; retry while `alive` says that the node is starting. Raises NodeUnreachable."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while not self._attached:
            if self._task and self._task.done():
                if not alive() or asyncio.get_running_loop().time() > deadline:
                    raise self._error or NodeUnreachable("This Mac's node does not answer.")
                await asyncio.sleep(RETRY_S)
                self._task = asyncio.create_task(self._follow())
            elif asyncio.get_running_loop().time() > deadline:
                raise NodeUnreachable("This Mac's node accepted the connection but does not answer.")
            await self._wait(RETRY_S)

    async def until(self, reached: Callable[[Watch], bool], timeout_s: float, what: str) -> None:
        """Wait until `reached`; raises LinkTimeout naming `what`, or NodeUnreachable if the node ends."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while not reached(self):
            if self._task and self._task.done():
                raise self._error or NodeUnreachable("This Mac's node ended.")
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                raise LinkTimeout(f"{what} took longer than {timeout_s:.0f} s.", "See the node's log.")
            await self._wait(left)

    async def _wait(self, timeout_s: float) -> None:
        # not wait_for: before Python 3.12 it swallows a Ctrl+C that arrives with an event
        async with self._changed:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(timeout_s, 0.5)):
                    await self._changed.wait()

    async def _follow(self) -> None:
        try:
            async for event in self.client.events():
                async with self._changed:
                    self.now = apply(self.now, event)
                    self.seen.append(event)
                    self._attached = True
                    self._changed.notify_all()
                self._on_event(event)
        except MaclusterError as error:
            self._error = error
        async with self._changed:
            self._changed.notify_all()


@asynccontextmanager
async def watching(home: Home) -> AsyncIterator[Watch]:
    """Follow the node of `home`, from its first snapshot on. Raises NodeUnreachable if none runs."""
    async with Watch(home) as watch:
        await watch.attached(ATTACH_S)
        yield watch
