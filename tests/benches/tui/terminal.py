"""A program in a pseudo-terminal of 120x36, with the time of each piece of its output."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Sequence

from core.errors import LinkTimeout

COLUMNS, ROWS = 120, 36
WAIT_S = 60.0


class Pty:
    """Use as a context manager; leaving it ends the program."""

    def __init__(self, command: Sequence[str]) -> None:
        self._ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.began = time.perf_counter()
        self._process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**environment, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
            start_new_session=True,
        )
        os.close(theirs)
        self._came = threading.Condition()
        self._pieces: list[tuple[float, bytes]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Pty:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(5)
        os.close(self._ours)

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._ours, 1 << 16)
            except OSError:  # the program has ended
                return
            if not piece:
                return
            with self._came:
                self._pieces.append((time.perf_counter(), piece))
                self._came.notify_all()

    def type(self, keys: bytes) -> float:
        """Write `keys` and return the time; earlier output is forgotten."""
        with self._came:
            self._pieces.clear()
        now = time.perf_counter()
        os.write(self._ours, keys)
        return now

    def turn(self) -> None:
        """Begin the next phase of a measured app."""
        self._process.send_signal(signal.SIGUSR1)

    def seen(self, text: bytes) -> float:
        """When `text` had been written since the last keys. Raises LinkTimeout."""
        deadline = time.perf_counter() + WAIT_S
        with self._came:
            while True:
                found = b""
                for at, piece in self._pieces:
                    found = found[-len(text) :] + piece
                    if text in found:
                        return at
                left = deadline - time.perf_counter()
                if left <= 0 or not self._came.wait(left):
                    raise LinkTimeout(f"The terminal never showed {text!r}.")
                if self._process.poll() is not None and not self._reader.is_alive():
                    raise LinkTimeout(f"The program ended before the terminal showed {text!r}.")
