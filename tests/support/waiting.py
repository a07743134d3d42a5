"""Waiting for what tells nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

WAIT_S: Final = 120.0
TRIES: Final = 5


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not reached():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0.01)


async def undisturbed(attempt: Callable[[], Awaitable[bool]]) -> None:
    """That `attempt` says yes once: what others do on this machine spoils one now and then, a mistake spoils each."""
    for _ in range(TRIES):
        if await attempt():
            return
    raise AssertionError(f"{TRIES} times running")
