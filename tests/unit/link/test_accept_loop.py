from __future__ import annotations

import asyncio
import os
import socket
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from core.link.accept_loop import accept_connections
from tests.support.descriptors import no_descriptor_left

HOST = "127.0.0.1"


@pytest.mark.promise("P11")
async def test_for_want_of_descriptors_room_is_made_and_accepting_goes_on() -> None:
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((HOST, 0)))
        listener.setblocking(False)
        oldest = os.dup(0)
        callers = accept_connections(listener, partial(os.close, oldest))
        for _ in range(2):
            stack.enter_context(socket.create_connection(listener.getsockname()))
        async with asyncio.timeout(120):
            with no_descriptor_left():
                first, address = await anext(callers)
            with first:
                assert (address[0], first.fileno()) == (HOST, oldest)
            second, _ = await anext(callers)
            second.close()


async def test_a_caller_without_an_address_has_reset_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS gives such a connection to who accepts; elsewhere it is an error, or not seen."""
    accept, callers = socket.socket.accept, iter([False, True])

    def like_macos(listener: socket.socket) -> tuple[socket.socket, object]:
        sock, address = accept(listener)
        return sock, address if next(callers) else None

    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((HOST, 0)))
        listener.setblocking(False)
        monkeypatch.setattr(socket.socket, "accept", like_macos)
        gone, here = [stack.enter_context(socket.create_connection(listener.getsockname())) for _ in range(2)]
        async with asyncio.timeout(120):
            sock, address = await anext(accept_connections(listener, pytest.fail))
        with sock:
            assert address == here.getsockname() != gone.getsockname()


async def test_a_caller_of_a_socket_file_has_no_address_and_is_taken(tmp_path: Path) -> None:
    with ExitStack() as stack:
        listener, caller = (stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2))
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        listener.setblocking(False)
        caller.connect(str(tmp_path / "s"))
        async with asyncio.timeout(120):
            sock, _ = await anext(accept_connections(listener, pytest.fail))
        sock.close()
