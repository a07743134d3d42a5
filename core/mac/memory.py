"""Memory of this machine: total, in use, available to a worker, and per process.

psutil is imported where it is used: it takes 10 ms, and commands import this module for other things.
"""

from __future__ import annotations

import sys
from typing import Final

from core.mac.system_command import answered
from core.settings import GB, MIB

MEMORY_RESERVE_BYTES: Final = 10 * GB
MEMORY_FLOOR_BYTES: Final = 2 * GB
USED_STEP_BYTES: Final = 64 * MIB
# struct rusage_info_v0: a 16-byte uuid and ten 8-byte numbers; the eighth is the footprint
RUSAGE_BYTES: Final = 16 + 10 * 8
FOOTPRINT_AT: Final = 16 + 7 * 8


def physical_bytes() -> int:
    import psutil

    return int(answered(psutil.virtual_memory()).total)


def used_bytes() -> int:
    """Memory in use in bytes, rounded so that small changes cause no events."""
    import psutil

    memory = answered(psutil.virtual_memory())
    return max(0, int(memory.total - memory.available)) // USED_STEP_BYTES * USED_STEP_BYTES


def wired_bytes() -> int:
    import psutil

    return int(getattr(answered(psutil.virtual_memory()), "wired", 0))


def default_budget(physical: int) -> int:
    """Memory a worker may use of `physical` bytes: all but a reserve for the user, at least the floor."""
    return max(MEMORY_FLOOR_BYTES, physical - MEMORY_RESERVE_BYTES)


def usable_bytes(budget: int, working_set: int, faults: int) -> int:
    """Bytes for planning: the budget, at most the GPU's `working_set` (0: unknown), less 10 % per memory fault."""
    most = min(budget, working_set) if working_set else budget
    return int(most * 0.9**faults)


def footprint_bytes(pid: int) -> int:
    """Memory of a process in bytes, 0 if it ended. On a Mac Activity Monitor's footprint, which includes the GPU's."""
    if sys.platform == "darwin":
        return _footprint(pid)
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def footprint_in(usage: bytes) -> int:
    return int.from_bytes(usage[FOOTPRINT_AT : FOOTPRINT_AT + 8], "little")


def _footprint(pid: int) -> int:
    import ctypes

    usage = ctypes.create_string_buffer(RUSAGE_BYTES)
    failed = ctypes.CDLL("/usr/lib/libproc.dylib").proc_pid_rusage(pid, 0, usage)
    return 0 if failed else footprint_in(usage.raw)
