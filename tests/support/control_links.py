"""Control links between two Macs on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from core.link.control_link import ControlLink, ControlServer, dial_control
from core.trust.roster.bundle import Cluster
from tests.support.macs import cluster, mac

HOST = "127.0.0.1"
WAIT_S = 60.0


class LinkListener:
    """A server of mac 1: its links wait in a queue, and `close` closes everything."""

    def __init__(self) -> None:
        self.links: asyncio.Queue[ControlLink] = asyncio.Queue()
        self.open: list[ControlLink] = []
        self.knows: Callable[[], Cluster] = lambda: cluster(3)
        self.server: ControlServer

    @property
    def port(self) -> int:
        return int(self.server.sockets[0].getsockname()[1])

    async def take(self, link: ControlLink) -> None:
        self.open.append(link)
        await self.links.put(link)

    def dial(self, me: int = 0, *, expects: int = 1, knows: Cluster | None = None) -> Awaitable[ControlLink]:
        return dial_control(
            HOST,
            self.port,
            identity=mac(me),
            cluster=knows or cluster(3),
            peer_id=mac(expects).device_id,
            timeout_s=WAIT_S,
        )

    async def pair(self, **how: Any) -> tuple[ControlLink, ControlLink]:
        near = await self.dial(**how)
        self.open.append(near)
        async with asyncio.timeout(WAIT_S):  # wait_for would swallow a cancellation that arrives with the result
            return near, await self.links.get()


async def soon(work: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(work, WAIT_S)
