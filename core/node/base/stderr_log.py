"""Standard error of a node without a terminal: a file of its home. launchd appends to the same one for years."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

from core.settings import Home

MAX_BYTES: Final = 1 << 20  # bytes

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


def rotate_stderr_log(home: Home, most: int = 0) -> None:
    """Move the file aside, over the older one, if it has more than `most` bytes. Raises OSError."""
    with suppress(FileNotFoundError):
        if home.stderr_log.stat().st_size > most:
            home.stderr_log.replace(home.stderr_log.with_suffix(".stderr.1"))


def limit_stderr_log(home: Home) -> None:
    """Continue in a new file if this process writes to the one of `home`, and it has more than MAX_BYTES bytes."""
    with suppress(OSError):
        if not os.path.samestat(os.fstat(2), home.stderr_log.lstat()):
            return
        rotate_stderr_log(home, MAX_BYTES)
        fd = os.open(home.stderr_log, _NEW, 0o600)
        os.dup2(fd, 2)
        os.close(fd)
