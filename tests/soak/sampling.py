"""Samples memory, descriptors, threads and disk of simulated Macs, and the speed of the machine."""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Final

import psutil

from tests.chaos.mac import Mac

MIB: Final = 1 << 20
BESIDE: Final = bytes(8 * MIB)


def held(macs: Sequence[Mac]) -> dict[str, float]:
    """Samples by "figure, Mac, process": memory in MiB, descriptors and threads of all processes of a kind, and disk
    usage.

    A Mac that is down is left out.
    """
    found = defaultdict[str, float](float)
    for mac in macs:
        if mac.is_up:
            for kind, process in _processes(mac.node):
                with suppress(psutil.Error), process.oneshot():  # it may end meanwhile
                    found[f"memory (MiB), {mac.name}, {kind}"] += process.memory_info().rss / MIB
                    found[f"descriptors, {mac.name}, {kind}"] += process.num_fds()
                    found[f"threads, {mac.name}, {kind}"] += process.num_threads()
            found[f"disk (MiB), {mac.name}"] = disk_bytes(mac.home.root) / MIB
    return found


def disk_bytes(folder: Path) -> int:
    """The disk usage of the files below a folder."""
    total = 0
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):
            total += 512 * file.lstat().st_blocks
    return total


def processor_s(pid: int) -> float:
    """The processor time of a process."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


async def beside_s() -> float:
    """Seconds that a fixed piece of work takes in this process now."""

    def work() -> float:
        began = perf_counter()
        hashlib.sha256(BESIDE).digest()
        return perf_counter() - began

    return await asyncio.to_thread(work)


def _processes(node: int) -> Iterator[tuple[str, psutil.Process]]:
    """A node and all its descendants, each with the module that it runs."""
    with suppress(psutil.Error):
        top = psutil.Process(node)
        for process in (top, *top.children(recursive=True)):
            with suppress(psutil.Error):
                words = process.cmdline()
                if "-m" in words[:-1]:
                    yield words[words.index("-m") + 1].removeprefix("core."), process
