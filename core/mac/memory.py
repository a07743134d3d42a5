"""How much memory this machine has, and how much of it a worker may use.

The commands import this for other things; psutil, a hundredth of a second, only where memory is looked at.
"""

from __future__ import annotations

from typing import Final

from core.settings import GB, MIB

MEMORY_RESERVE_BYTES: Final = 10 * GB
MEMORY_FLOOR_BYTES: Final = 2 * GB
USED_STEP_BYTES: Final = 64 * MIB


def physical_bytes() -> int:
    """Memory of this machine in bytes."""
    import psutil

    return int(psutil.virtual_memory().total)


def used_bytes() -> int:
    """Memory in use on this machine in bytes, as coarse as people read it: what moves all the time is no news."""
    import psutil

    memory = psutil.virtual_memory()
    return int(memory.total - memory.available) // USED_STEP_BYTES * USED_STEP_BYTES


def default_budget(physical: int) -> int:
    """What a worker may use of `physical` bytes: all but a reserve for the person's own work, at least the floor."""
    return max(MEMORY_FLOOR_BYTES, physical - MEMORY_RESERVE_BYTES)


def rss_bytes(pid: int) -> int:
    """Resident memory of a process in bytes, 0 if it is gone."""
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0
