"""Kill a process that this node started."""

from __future__ import annotations

import os
import signal
from asyncio.subprocess import Process
from contextlib import suppress


def kill(process: Process) -> None:
    """Kill it unless it has ended. `Process.kill` polls, and may take the exit status away from asyncio."""
    kill_unless_over(process.pid, process.returncode)


def kill_unless_over(pid: int, status: int | None) -> None:
    """Kill the process `pid` if asyncio's `status` of it is None, so it has not ended."""
    if status is None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
