"""A listener that never gives up: where nothing is left to accept with, room is made, and it goes on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

PAUSE_S: Final = 0.1


async def accept_connections(
    listener: socket.socket, make_room: Callable[[], object]
) -> AsyncIterator[tuple[socket.socket, Any]]:
    """Whoever connects, and his address. `make_room` closes what can be spared, where no file descriptor is left."""
    while True:
        try:
            sock, address = listener.accept()
        except BlockingIOError:
            await _readable(listener)
            continue
        except OSError as error:
            if not isinstance(error, ConnectionError):  # such a caller is gone already
                make_room()
            await asyncio.sleep(PAUSE_S)
            continue
        sock.setblocking(False)
        yield sock, address
        await asyncio.sleep(0)  # where somebody waits already, nobody else would run


async def _readable(listener: socket.socket) -> None:
    """Somebody waits. `loop.sock_accept` fails where he comes in the moment in which it is cancelled (Python 3.11)."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(listener, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(listener)
