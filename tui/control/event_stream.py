"""Follows the node's events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from core.errors import MaclusterError, NodeUnreachable, Problem
from core.events import AnyEvent

if TYPE_CHECKING:
    from tui.client import NodeClient

RETRY_S = 1.0
EVENTS_A_TURN = 64


async def follow(client: NodeClient, take: Callable[[AnyEvent], None], lose: Callable[[Problem], None]) -> None:
    """Pass every event to `take`, forever. While no node answers, call `lose` once a second with the reason."""
    while True:
        gone = NodeUnreachable("macluster's service on this Mac stopped.").problem
        try:
            count = 0
            async for event in client.events():
                take(event)
                count += 1
                if count % EVENTS_A_TURN == 0:
                    # a burst of events would keep the screen from being drawn
                    await asyncio.sleep(0)
        except MaclusterError as error:
            gone = error.problem
        lose(gone)
        await asyncio.sleep(RETRY_S)
