"""T4: a paired Mac that turned hostile, and the logs that it reads and sends."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path

import pytest

from core.errors import LinkError
from core.link.control_link import ControlLink, dial_control
from core.link.frames import FrameType
from core.node.base.journal import LINE_LIMIT, Journal
from core.node.base.node_message import NodeMessage, to_frame
from core.node.peers.messages import LOGS, MAX_LOG_LINES, LogEntry, LogReply, LogRequest, Ping
from core.node.peers.peer_logs import PeerLogs
from tests.support.contexts import context_of
from tests.support.macs import cluster, mac
from tests.support.meshes import HOST, LOW, MIDDLE, SIZE, Post, posted
from tests.support.node_messages import from_frame
from tests.support.waiting import until

LINES = (LogEntry(at=1e11, level="ERROR", text="\x1b]0;x\x07" + "x" * LINE_LIMIT),) * MAX_LOG_LINES
FLOOD = LogReply(run=1, last=1, now=1e11, lines=LINES)


class HostileReader:
    """Messages that a hostile member receives over its link."""

    def __init__(self, link: ControlLink) -> None:
        self._link = link
        self.asked = self.told = 0

    async def read(self) -> None:
        """Read messages without answering pings: the flood is sign of life enough."""
        while True:
            kind, body = await self._link.recv()
            if kind is FrameType.LOG:
                message = from_frame(kind, body)
                self.asked += isinstance(message, LogRequest)
                self.told += isinstance(message, LogReply)

    async def flood(self) -> None:
        """Send endless lines, with questions in between."""
        await self._link.send(*to_frame(Ping(sent=0.0, logged=1 << 50)))
        while True:
            await self._link.send(*to_frame(FLOOD))
            await self._link.send(*to_frame(LogRequest(run=0, after=0)))


@pytest.mark.promise("P30")
async def test_lines_and_questions_without_end_cost_what_a_mac_asks_for_and_hide_no_line_of_another(
    tmp_path: Path,
) -> None:
    async with posted(tmp_path, MIDDLE) as post:
        journal = Journal(tmp_path / "own", "own", post.bus)
        logs = _reading(post, journal)
        for number in range(20):
            journal.info(f"own {number}")
        link = await dial_control(
            HOST, post.port, identity=mac(LOW), cluster=cluster(SIZE), peer_id=mac(MIDDLE).device_id, timeout_s=60.0
        )
        heard, began = HostileReader(link), time.monotonic()
        with logs.read():
            working = [asyncio.create_task(work) for work in (heard.read(), heard.flood(), logs.watch())]
            try:
                await until(
                    lambda: any(w.done() for w in working) or (heard.asked >= 3 and heard.told > LOGS.burst / 2)
                )
                took_s = time.monotonic() - began
                shown = [line for line in post.bus.now.logs if line.source != "own"]
                assert 0 < len(shown) <= MAX_LOG_LINES * (heard.asked + 1)
                assert heard.told <= LOGS.burst + LOGS.per_s * took_s + 1
                assert max(line.at for line in shown) <= time.time()
                assert {line.text for line in shown} == {"]0;x" + "x" * (LINE_LIMIT - 4)}
                assert sum(line.source == "own" for line in post.bus.now.logs) == 20
                assert post.ends == []
            finally:
                for task in working:
                    task.cancel()
                link.close()
                for task in working:
                    with suppress(asyncio.CancelledError, LinkError):
                        await task


def _reading(post: Post, journal: Journal) -> PeerLogs:
    """The reader of logs over that Mac's links."""
    logs = PeerLogs(context_of(bus=post.bus, journal=journal, tasks=post.tasks), post.mesh)

    async def hear(device_id: str, message: NodeMessage) -> None:
        if isinstance(message, LogRequest | LogReply):
            await logs.handle_message(device_id, message)

    post.listeners.append(hear)
    return logs
