"""What a node writes to standard error, where that is a file of its home: how it ended where its log does not say. The
screen begins one for each node that it starts; launchd goes on with the same one for years.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

from core.settings import Home

MOST: Final = 1 << 20  # bytes

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


def set_aside(home: Home, most: int = 0) -> None:
    """What is written takes the place of what was set aside before, if that is more than `most` bytes. Raises
    OSError.
    """
    with suppress(FileNotFoundError):
        if home.complaints.stat().st_size > most:
            home.complaints.replace(home.complaints.with_suffix(".stderr.1"))


def bound_complaints(home: Home) -> None:
    """What this process writes from now on begins a new file, where it goes to the one of `home` and that has grown
    long.
    """
    with suppress(OSError):
        if not os.path.samestat(os.fstat(2), home.complaints.lstat()):
            return
        set_aside(home, MOST)
        fd = os.open(home.complaints, _NEW, 0o600)
        os.dup2(fd, 2)
        os.close(fd)
