"""Lines that are pasted where Python has libedit, which knows no bracketed paste."""

from __future__ import annotations

import builtins
import os
import pty
import sys
import termios
from types import SimpleNamespace

import pytest

from tui.cli import typed_lines
from tui.cli.typed_lines import Keyboard, more_waits


@pytest.mark.parametrize(
    ("backend", "lines"), [("editline", ["one\ntwo\nthree", "typed"]), ("readline", ["one", "two", "three", "typed"])]
)
def test_pasted_lines_are_one_message(backend: str, lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The last of them has no end of its own: the person sends it by Enter."""
    left, heard = ["one", "two", "three", "typed"], list[str]()
    library = SimpleNamespace(
        backend=backend, set_auto_history=bool, parse_and_bind=bool, add_history=heard.append, __doc__=None
    )
    monkeypatch.setitem(sys.modules, "readline", library)
    monkeypatch.setattr(builtins, "input", lambda _: left.pop(0))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(fileno=lambda: 0))
    monkeypatch.setattr(typed_lines, "more_waits", lambda _: len(left) in (2, 3))
    keyboard = Keyboard(None)
    assert [keyboard.read() for _ in lines] == lines
    assert heard == lines


def test_the_rest_of_a_paste_is_seen_and_stays() -> None:
    keys, terminal = pty.openpty()
    try:
        before = termios.tcgetattr(terminal)
        assert not more_waits(terminal)
        os.write(keys, b"thr")
        assert more_waits(terminal), "a line without an end"
        assert termios.tcgetattr(terminal) == before
        os.write(keys, b"ee\n")
        assert os.read(terminal, 9) + os.read(terminal, 9) == b"three\n"
    finally:
        os.close(keys)
        os.close(terminal)
