from __future__ import annotations

import asyncio
import os
import socket
from contextlib import ExitStack
from functools import partial

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
