"""Logs of the linked Macs: while this Mac's log is read, it requests each one's new lines once a second."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Final

from core.events import LogLine
from core.node.base.context import NodeContext
from core.node.base.tasks import next_look
from core.node.peers.clock_difference import ClockDifference, clock_difference
from core.node.peers.mesh import Mesh
from core.node.peers.messages import MAX_LOG_LINES, LogEntry, LogMessage, LogReply, LogRequest

ASK_EVERY_S: Final = 1.0
ANSWER_S: Final = 10.0
CLOCKS_KEPT: Final = 8


class PeerLog:
    """Reading position in one Mac's log."""

    def __init__(self) -> None:
        self.run = self.last = 0
        self.is_new = True  # nothing was read over the present link
        self._asked_s: float | None = None
        self._clocks: deque[ClockDifference] = deque(maxlen=CLOCKS_KEPT)

    def ask(self, now_s: float) -> LogRequest | None:
        """The request to send at `now_s` (monotonic); None while a reply is due."""
        if self._asked_s is not None and now_s < self._asked_s + ANSWER_S:
            return None
        self._asked_s = now_s
        return LogRequest(run=self.run, after=self.last)

    def take(self, reply: LogReply, now_s: float, now: float) -> list[tuple[float, LogEntry]]:
        """Lines of a reply that came at `now_s` (monotonic), or `now` (seconds since the epoch), with their times by
        this clock, never in the future. An unrequested reply has no lines.
        """
        if self._asked_s is None:
            return []
        self._clocks.append(clock_difference(self._asked_s, reply.now, now_s))
        self._asked_s, self.is_new, self.run, self.last = None, False, reply.run, reply.last
        ahead_s = min(self._clocks, key=lambda clock: clock.error_s).ahead_s
        return [(max(0.0, min(now, now - now_s + line.at - ahead_s)), line) for line in reply.lines]

    def gone(self) -> None:
        self._asked_s, self.is_new = None, True
        self._clocks.clear()


class PeerLogs:
    """Requests logs while they are read here, and answers requests of other Macs."""

    def __init__(self, node: NodeContext, mesh: Mesh) -> None:
        self._mesh, self._journal, self._bus, self._tasks = mesh, node.journal, node.bus, node.tasks
        self._logs: dict[str, PeerLog] = {}
        self._readers = 0

    @contextmanager
    def read(self) -> Iterator[None]:
        self._readers += 1
        try:
            yield
        finally:
            self._readers -= 1

    async def watch(self) -> None:
        while True:
            if self._readers:
                self._ask_all()
            await next_look(ASK_EVERY_S)

    def _ask_all(self) -> None:
        for device_id, contact in self._mesh.contacts.items():
            log = self._logs.setdefault(device_id, PeerLog())
            if (log.is_new or contact.logged > log.last) and (asked := log.ask(monotonic())):
                self._tasks.spawn("Asking for a log", self._mesh.send(device_id, asked))

    async def handle_message(self, device_id: str, message: LogMessage) -> None:
        match message:
            case LogRequest(run=run, after=after):
                await self._mesh.send(device_id, self._lines_after(after if run == self._journal.run else 0))
            case LogReply() if log := self._logs.get(device_id):
                for at, line in log.take(message, monotonic(), time.time()):
                    self._bus.publish(
                        LogLine(at=at, level=line.level, source=self._bus.now.name_of(device_id), text=line.text)
                    )

    def gone(self, device_id: str) -> None:
        if log := self._logs.get(device_id):
            log.gone()

    def _lines_after(self, after: int) -> LogReply:
        last, lines = self._journal.after(after, MAX_LOG_LINES)
        entries = tuple(LogEntry(at=line.at, level=line.level, text=line.text) for line in lines)
        return LogReply(run=self._journal.run, last=last, now=time.time(), lines=entries)
