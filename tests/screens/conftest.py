from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from tests.screens.terminals import Terminal, assert_gone

Open = Callable[..., Terminal]


@pytest.fixture
def terminal() -> Iterator[Open]:
    opened: list[Terminal] = []

    def open_terminal(width: int, height: int, *words: str) -> Terminal:
        opened.append(Terminal(f"mc-{os.getpid()}-{len(opened)}", width, height, *words))
        return opened[-1]

    yield open_terminal
    for terminal in opened:
        processes = [] if terminal.ended() else terminal.processes()
        terminal.kill()
        assert_gone(processes)
