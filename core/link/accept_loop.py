"""Accept connections forever, and make room when file descriptors run out."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from core.link.listener import accept

PAUSE_S: Final = 0.1


async def accept_connections(
    listener: socket.socket, make_room: Callable[[], object]
) -> AsyncIterator[tuple[socket.socket, Any]]:
    """Yield each connection and its address; `make_room` closes something expendable when descriptors run out."""
    while True:
        try:
            sock, address = accept(listener)
        except BlockingIOError:
            await readable(listener)
            continue
        except OSError as error:
            if not isinstance(error, ConnectionError):  # such a caller is gone already
                make_room()
            await asyncio.sleep(PAUSE_S)
            continue
        sock.setblocking(False)
        yield sock, address
        await asyncio.sleep(0)  # connections already waiting must not starve other tasks


async def readable(sock: socket.socket) -> None:
    """Wait for bytes, or a connection. `loop.sock_accept` can lose one when cancelled at that moment (Python 3.11)."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sock, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sock)
