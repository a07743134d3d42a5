"""Processes that tests have started, seen from outside."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

import psutil

GONE_S = 120.0
WATCHED_S = 4.0
# an idle worker uses no measurable time; this allows for a machine that is busy otherwise
IDLE_SHARE = 0.05


def lives(pid: int) -> bool:
    """Whether the process exists; a zombie is dead."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def gone(pids: Iterable[int], within_s: float = GONE_S) -> float:
    """Wait until all processes are dead; returns the seconds it took."""
    began = time.monotonic()
    while alive := [pid for pid in pids if lives(pid)]:
        assert time.monotonic() < began + within_s, f"{alive} live on after {within_s} s"
        time.sleep(0.02)
    return time.monotonic() - began


def shares(pids: Sequence[int]) -> list[float]:
    """The share of a core that each process uses over some seconds."""
    processes = [psutil.Process(pid) for pid in pids]
    before, began = [sum(p.cpu_times()[:2]) for p in processes], time.monotonic()
    time.sleep(WATCHED_S)
    took = time.monotonic() - began
    return [(sum(p.cpu_times()[:2]) - b) / took for p, b in zip(processes, before, strict=True)]


@contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    """Stop these processes for a while; ended ones are skipped."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
