"""Waits for conditions that send no event."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

WAIT_S: Final = 120.0
TRIES: Final = 5


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not reached():  # noqa: ASYNC110 - the condition sends no event
            await asyncio.sleep(0.01)


async def undisturbed(attempt: Callable[[], Awaitable[bool]]) -> None:
    """Check that `attempt` succeeds once in a few tries: a busy machine fails some of them, a mistake fails all."""
    for _ in range(TRIES):
        if await attempt():
            return
    raise AssertionError(f"{TRIES} times running")
