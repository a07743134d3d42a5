"""One node per state folder: two would write the same files and fight for the local socket."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from core.errors import NodeError
from core.settings import Home
from core.trust.private_files import private_folder


@contextmanager
def home_lock(home: Home) -> Iterator[None]:
    """Lock this home during the block. Raises NodeError if another process has it, TrustError if the folder is open."""
    private_folder(home.root)
    try:
        fd = os.open(home.lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        cure = "Move it away, and try again."
        if error.errno in (errno.EROFS, errno.EACCES):
            cure = "Choose a folder in which this account can write, with --home."
        raise NodeError(f"{home.lock} cannot be opened: {error.strerror}.", cure) from error
    try:
        _lock(fd, home)
        yield
    finally:
        os.close(fd)


def _lock(fd: int, home: Home) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
    except BlockingIOError as error:
        holder = os.pread(fd, 20, 0).decode("ascii", "replace")
        whose = f" (process {holder})" if holder.isdigit() else ""
        end = f"`kill {holder}` ends it" if whose else "End it first"
        use = "macluster and its commands use that one. To serve other programs from it, press A, then o, in macluster."
        cure = f"{use} {end}, or --home gives this one another folder."
        raise NodeError(f"Another node{whose} runs on {home.root} already.", cure) from error
    except OSError as error:
        cure = "Choose a folder on a disk of this Mac that has room, with --home."
        raise NodeError(f"{home.root} cannot be locked: {error.strerror}.", cure) from error
