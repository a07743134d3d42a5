"""Work on large bodies is done in a thread, so that it does not hold the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

LARGE_BODY: Final = 1 << 18  # bytes
_LARGE_BODIES: Final = ThreadPoolExecutor(1, "large-bodies")  # one at a time, so that they never outnumber the loop

_T = TypeVar("_T")


async def off_loop(size: int, work: Callable[[], _T]) -> _T:
    """Result of `work` on a body of `size` bytes."""
    if size <= LARGE_BODY:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_LARGE_BODIES, work)
