"""Lines of a conversation, typed or from a pipe, and what Ctrl+C does to them.

Waiting for a line blocks the event loop, because readline can be interrupted in the main thread only.
"""

from __future__ import annotations

import asyncio
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, Protocol, Self

import msgspec

from core.errors import NodeError
from core.settings import Home
from core.trust.file_formats import JsonFile
from core.trust.private_files import MAX_PRIVATE_FILE

PROMPT: Final = "> "
CONTINUED: Final = ". "
TERMINATED: Final = 143
PASTE_S: Final = 0.03

_FILE: Final = JsonFile[list[str]](Home.typed, list[str], NodeError, "Delete it, or use --keep-nothing.")
_LINES_BYTES: Final = MAX_PRIVATE_FILE - 64
_Handler = Callable[[int, FrameType | None], object]


class Lines(Protocol):
    """The source of a conversation's lines."""

    is_person: bool

    def read(self) -> str | None:
        """Return the next line, "" after Ctrl+C, None at the end."""

    async def attend(self, work: Coroutine[Any, Any, object]) -> bool:
        """Run `work`; return False if the user stopped it."""


class Pipe:
    """Lines from a pipe; Ctrl+C ends the program."""

    is_person = False

    def read(self) -> str | None:
        with _on_signals({signal.SIGINT: signal.default_int_handler, signal.SIGTERM: _terminate}):
            line = sys.stdin.readline()
        return line.rstrip("\n") if line else None

    async def attend(self, work: Coroutine[Any, Any, object]) -> bool:
        await work
        return True


class Keyboard:
    """Lines from a terminal.

    Pasted text is one line; a line that ends in a backslash continues. Ctrl+C clears the line or stops the answer.
    Use as a context manager: leaving it writes the newest lines to `history`, if any; raises NodeError.
    """

    is_person = True

    def __init__(self, history: Path | None) -> None:
        import readline  # reads the terminal's description, which a pipe doesn't have

        self._readline, self._history = readline, history
        self._is_typing, self._stop = False, _nothing
        readline.set_auto_history(False)
        readline.parse_and_bind("set enable-bracketed-paste on")  # pasted text is one line, whatever it contains
        # libedit, which Pythons of uv and python.org have on a Mac, can't: more that waits is of the same paste
        self._is_libedit = "libedit" in (readline.__doc__ or "") or getattr(readline, "backend", "") == "editline"
        for line in _remembered(history) if history else ():
            self._readline.add_history(line)

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)
        if self._history is not None:
            self._remember(self._history)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._is_typing:
            raise KeyboardInterrupt
        self._stop()

    def read(self) -> str | None:
        parts: list[str] = []
        try:
            with _on_signals({signal.SIGTERM: _terminate}):
                self._is_typing = True
                line = input(PROMPT)
                while line.endswith("\\") or (self._is_libedit and more_waits(sys.stdin.fileno())):
                    parts.append(line.removesuffix("\\"))
                    line = input(CONTINUED)
                self._is_typing = False
        except (EOFError, KeyboardInterrupt) as end:
            self._is_typing = False
            print()
            return None if isinstance(end, EOFError) else ""
        line = "\n".join([*parts, line])
        if line.strip():
            self._readline.add_history(line)
        return line

    async def attend(self, work: Coroutine[Any, Any, object]) -> bool:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)

        def stop() -> None:
            self._stop = _nothing  # its cleanup must not be stopped, too
            loop.call_soon_threadsafe(task.cancel)

        self._stop = stop
        try:
            await asyncio.wait({task})
        finally:
            self._stop = _nothing
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        if task.cancelled():
            return False
        task.result()
        return True

    def _remember(self, history: Path) -> None:
        kept: list[str] = []
        room = _LINES_BYTES
        for number in range(self._readline.get_current_history_length(), 0, -1):
            line = self._readline.get_history_item(number)
            if (room := room - len(msgspec.json.encode(line)) - 1) < 0:
                break
            kept.append(line)
        if not _FILE.is_newer(history):
            _FILE.write(history, kept[::-1])


def more_waits(terminal: int) -> bool:
    """Whether `terminal` has more to read within `PASTE_S`, also the begin of a line; nothing is read."""
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal, termios.TCSANOW)
        return bool(select.select([terminal], [], [], PASTE_S)[0])
    finally:
        termios.tcsetattr(terminal, termios.TCSANOW, before)


def _remembered(history: Path) -> list[str]:
    """Read the history; a newer file counts as empty. Raises NodeError if it is damaged."""
    return _FILE.read(history) if history.exists() and not _FILE.is_newer(history) else []


def _nothing() -> None:
    pass


def _terminate(number: int, frame: FrameType | None) -> object:
    raise SystemExit(TERMINATED)


@contextmanager
def _on_signals(handlers: dict[signal.Signals, _Handler]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
