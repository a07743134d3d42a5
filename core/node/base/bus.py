"""Events of this node: published once, followed by any number of readers, folded into a snapshot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from core.events import AnyEvent, Snapshot
from core.snapshot import apply
from core.version import program_version

READER_LIMIT = 10_000


class Bus:
    """Publishes events to readers; `now` is the fold of all of them."""

    def __init__(self) -> None:
        self.now = Snapshot(version=program_version())
        self._readers: dict[asyncio.Queue[AnyEvent | None], str] = {}  # value: the request followed, "" for all
        self._on_work: list[Callable[[], None]] = []

    def on_work(self, handle: Callable[[], None]) -> None:
        """Call `handle` whenever this Mac begins to do something."""
        self._on_work.append(handle)

    def publish(self, event: AnyEvent) -> None:
        """Fold the event into `now` and pass it to every reader; a reader that is too slow is dropped."""
        was_working, self.now = self.now.is_working, apply(self.now, event)
        if self.now.is_working and not was_working:
            for handle in self._on_work:
                handle()
        request_id = getattr(event, "request_id", "")
        for queue, wanted in list(self._readers.items()):
            if wanted and wanted != request_id:
                continue
            if queue.qsize() >= READER_LIMIT:
                del self._readers[queue]
                queue.put_nowait(None)
            else:
                queue.put_nowait(event)

    def close(self) -> None:
        for queue in self._readers:
            queue.put_nowait(None)
        self._readers.clear()

    async def follow(self, request_id: str = "") -> AsyncGenerator[AnyEvent, None]:
        queue: asyncio.Queue[AnyEvent | None] = asyncio.Queue()
        self._readers[queue] = request_id
        try:
            yield self.now
            while (event := await queue.get()) is not None:
                yield event
        finally:
            self._readers.pop(queue, None)
