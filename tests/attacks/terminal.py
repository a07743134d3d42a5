"""A terminal that keeps every byte written to it, and finds bytes that do more than draw."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType

ESCAPE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|.|$)", re.DOTALL)
# sequences of Textual's driver: colours, cursor, alternate screen, mouse, focus, paste, synchronised output, keyboard
# protocol, and shape of the mouse pointer
DRAWING = re.compile(
    r"\x1b\]22;[a-z-]*\x07|\x1b\[("
    r"[0-9;:]*m|[0-9]+;[0-9]+H|\?(1049|25|1000|1002|1003|1004|1006|1015|1016|2004|2026|2048|7)[hl]"
    r"|\?(2026|2048)\$p|>[0-9]+u|<u|=[0-9;]*u|\?u"
    r")"
)
WAIT_S = 120.0


class Terminal:
    """A pseudo terminal of 120 by 36 with one command in it. Use as a context manager."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], width: int = 120, height: int = 36) -> None:
        self._written = bytearray()
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        clean = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={**clean, "TERM": "xterm-256color", "COLORTERM": "truecolor", **environment},
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join()
        os.close(self._master)

    def _read(self) -> None:
        while True:
            ready, _, _ = select.select([self._master], [], [], 0.2)
            try:
                if ready:
                    self._written += os.read(self._master, 65536)
                elif self.process.poll() is not None:
                    return
            except OSError:
                return  # Linux raises this when the last process of the terminal has ended

    def type(self, keys: str) -> None:
        """Type keys."""
        os.write(self._master, keys.encode())

    @property
    def text(self) -> str:
        """All text written; bytes that are no UTF-8 fail."""
        return bytes(self._written).decode("utf-8", "strict" if self.process.poll() is not None else "ignore")

    def until(self, reached: Callable[[str], bool], what: str) -> None:
        """Wait until the text written so far, without drawing, satisfies the condition."""
        deadline = time.monotonic() + WAIT_S
        while not reached(words(self.text)):
            assert self.process.poll() is None, f"it ended before {what}:\n{words(self.text)[-2000:]}"
            assert time.monotonic() < deadline, f"{what} did not arrive:\n{words(self.text)[-2000:]}"
            time.sleep(0.1)

    def shows(self, *said: str) -> None:
        """Wait until all of these are written."""
        self.until(lambda text: all(word in text for word in said), f"{said}")


def words(text: str) -> str:
    """The text without escape sequences."""
    return ESCAPE.sub("", text)


def beyond_drawing(text: str) -> list[str]:
    """Everything in `text` that a terminal would obey and that is not drawing."""
    sequences = [match.group() for match in ESCAPE.finditer(text)]
    found = [s for s in sequences if not DRAWING.fullmatch(s)]
    rest = words(text)
    return found + [c for c in rest if (ord(c) < 0x20 and c not in "\r\n\t") or 0x7F <= ord(c) < 0xA0 or c in BIDI]


BIDI = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
