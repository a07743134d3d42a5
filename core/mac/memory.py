"""How much memory this machine has, how much of it a worker may use, and what a process takes.

The commands import this for other things; psutil, a hundredth of a second, only where memory is looked at.
"""

from __future__ import annotations

import sys
from typing import Final

from core.settings import GB, MIB

MEMORY_RESERVE_BYTES: Final = 10 * GB
MEMORY_FLOOR_BYTES: Final = 2 * GB
USED_STEP_BYTES: Final = 64 * MIB
# struct rusage_info_v0: a uuid of 16 bytes and ten numbers of 8, of which the footprint is the eighth
RUSAGE_BYTES: Final = 16 + 10 * 8
FOOTPRINT_AT: Final = 16 + 7 * 8


def physical_bytes() -> int:
    """Memory of this machine in bytes."""
    import psutil

    return int(psutil.virtual_memory().total)


def used_bytes() -> int:
    """Memory in use on this machine in bytes, as coarse as people read it: what moves all the time is no news."""
    import psutil

    memory = psutil.virtual_memory()
    return int(memory.total - memory.available) // USED_STEP_BYTES * USED_STEP_BYTES


def wired_bytes() -> int:
    """Memory of a Mac that stays where it is, in bytes; 0 on another system."""
    import psutil

    return int(getattr(psutil.virtual_memory(), "wired", 0))


def default_budget(physical: int) -> int:
    """What a worker may use of `physical` bytes: all but a reserve for the person's own work, at least the floor."""
    return max(MEMORY_FLOOR_BYTES, physical - MEMORY_RESERVE_BYTES)


def usable_bytes(budget: int, working_set: int, faults: int) -> int:
    """What of a budget in bytes a model is planned with: no more than the `working_set` that macOS lets the GPU use, 0
    where nothing is said, and a tenth less for each time that this was not enough.
    """
    most = min(budget, working_set) if working_set else budget
    return int(most * 0.9**faults)


def footprint_bytes(pid: int) -> int:
    """Memory that a process takes in bytes, 0 if it is gone: resident memory, which on a Mac leaves out the GPU's, so
    there the footprint of Activity Monitor.
    """
    if sys.platform == "darwin":
        return _footprint(pid)
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def footprint_in(usage: bytes) -> int:
    """`ri_phys_footprint` of a `struct rusage_info_v0` of macOS, in bytes."""
    return int.from_bytes(usage[FOOTPRINT_AT : FOOTPRINT_AT + 8], "little")


def _footprint(pid: int) -> int:
    import ctypes

    usage = ctypes.create_string_buffer(RUSAGE_BYTES)
    failed = ctypes.CDLL("/usr/lib/libproc.dylib").proc_pid_rusage(pid, 0, usage)
    return 0 if failed else footprint_in(usage.raw)
