"""Processes that tests have started, seen from outside."""

from __future__ import annotations

import time
from collections.abc import Iterable

import psutil

GONE_S = 120.0


def lives(pid: int) -> bool:
    """Whether there is such a process; a zombie is dead."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def gone(pids: Iterable[int], within_s: float = GONE_S) -> float:
    """Wait until none of the processes lives; after how many seconds that was."""
    began = time.monotonic()
    while alive := [pid for pid in pids if lives(pid)]:
        assert time.monotonic() < began + within_s, f"{alive} live on after {within_s} s"
        time.sleep(0.02)
    return time.monotonic() - began
