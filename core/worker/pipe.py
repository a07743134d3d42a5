"""The worker's end of the pipe to its node."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from functools import partial

from core.pipe_messages import read_messages, write_message
from core.worker.messages import Command, Report, unpack_command


class Inbox:
    """Commands from the node, read by one thread that is the worker's lifeline.

    The thread only blocks in read, so it costs nothing while the ring runs. When the node goes away the pipe ends, and
    the process ends at once, even in the middle of a long evaluation: no worker outlives its node.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._commands: deque[Command] = deque()
        self._wake_read, self._wake_write = os.pipe()
        self._is_woken = False  # whether the descriptor is readable, or will be at once
        for end in (self._wake_read, self._wake_write):
            os.set_blocking(end, False)
        threading.Thread(target=self._read_until_eof, name="inbox", daemon=True).start()

    def fileno(self) -> int:
        """A descriptor that is readable when commands may be waiting."""
        return self._wake_read

    def take(self) -> Command | None:
        """The next command, or None. Called for each token, so it is free while no command waits."""
        if not self._is_woken:
            return None
        self._is_woken = False
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 4096)
        try:
            command = self._commands.popleft()
        except IndexError:
            return None
        if self._commands:
            self._wake()
        return command

    def _read_until_eof(self) -> None:
        try:
            for body in read_messages(partial(os.read, self._fd)):
                self._commands.append(unpack_command(body))
                self._wake()
        finally:  # on any error: without this thread the worker would outlive its node
            os._exit(0)

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # a full pipe is readable anyway
            os.write(self._wake_write, b"!")
        self._is_woken = True  # set afterwards: whatever is readable gets taken out


class Outbox:
    """Reports to the node."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def put(self, report: Report) -> None:
        """Write one report, from any thread; blocks while the node lags, and ends the process if the node is gone."""
        try:
            with self._lock:
                write_message(self._fd, report)
        except BrokenPipeError:
            os._exit(0)


def private_pipe() -> tuple[Inbox, Outbox]:
    """Take over stdin and stdout for the node's messages; fd 1 becomes stderr, so that no print corrupts them."""
    commands, reports = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return Inbox(commands), Outbox(reports)
