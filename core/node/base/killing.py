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
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
