"""A listener that never gives up: where nothing is left to accept with, room is made, and it goes on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

PAUSE_S: Final = 0.1


async def accepted(
    listener: socket.socket, make_room: Callable[[], object]
) -> AsyncIterator[tuple[socket.socket, Any]]:
    """Whoever connects, and his address. `make_room` closes what can be spared, where no file descriptor is left."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            caller = await loop.sock_accept(listener)
        except OSError as error:
            if not isinstance(error, ConnectionError):  # such a caller is gone already
                make_room()
            await asyncio.sleep(PAUSE_S)
            continue
        yield caller
        await asyncio.sleep(0)  # where somebody waits already, sock_accept lets nobody else run
