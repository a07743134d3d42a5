from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.terminals import Terminal, assert_gone

Open = Callable[..., Terminal]


@pytest.fixture
def terminal() -> Iterator[Open]:
    opened: list[Terminal] = []
    with tempfile.TemporaryDirectory(prefix="mc-") as folder:

        def open_terminal(width: int, height: int, *words: str) -> Terminal:
            opened.append(Terminal(Path(folder) / str(len(opened)), width, height, *words))
            return opened[-1]

        yield open_terminal
        for terminal in opened:
            processes = [] if terminal.ended() else terminal.processes()
            terminal.kill()
            assert_gone(processes)
