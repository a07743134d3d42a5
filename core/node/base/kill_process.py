"""Ends a process that this node started."""

from __future__ import annotations

import os
import signal
from asyncio.subprocess import Process
from contextlib import suppress


def kill(process: Process) -> None:
    """At once, unless it has ended. Its own `kill` asks whether it has, and may take its exit status away from asyncio,
    which complains then.
    """
    kill_unless_over(process.pid, process.returncode)


def kill_unless_over(pid: int, status: int | None) -> None:
    """The same, of what asyncio says of a process: its `status` is None as long as it has not ended."""
    if status is None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
