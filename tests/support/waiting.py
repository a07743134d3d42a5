"""Waiting for what tells nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not reached():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0.01)
