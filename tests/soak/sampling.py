"""What the processes and folders of simulated Macs hold, again and again, and how fast the machine is meanwhile."""

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
    """By "figure, Mac, process": memory in MiB, open descriptors and threads of all processes of a kind, and what a
    Mac's folder takes of the disk. A Mac that is not up is left out.
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
    """What the files below take of the disk."""
    total = 0
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):
            total += 512 * file.lstat().st_blocks
    return total


def processor_s(pid: int) -> float:
    """What a process has computed."""
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
    """A node and all below it, each with the module that it runs."""
    with suppress(psutil.Error):
        top = psutil.Process(node)
        for process in (top, *top.children(recursive=True)):
            with suppress(psutil.Error):
                words = process.cmdline()
                if "-m" in words[:-1]:
                    yield words[words.index("-m") + 1].removeprefix("core."), process
