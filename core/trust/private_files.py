"""Files that only this user can read, written atomically."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from core.errors import IdentityError, MaclusterError

MAX_PRIVATE_FILE: Final = 64 * 1024
_F_BARRIERFSYNC: Final = 85  # of macOS; Python has no name for it

ErrorClass = type[MaclusterError]


def private_folder(folder: Path, error: ErrorClass = IdentityError) -> None:
    """Create `folder` if needed and check that it is no symlink and private (0700). Raises `error`."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        if not os.path.lexists(folder):
            cure = "Make room there, or repair its parent folder."
            raise error(f"{folder} cannot be made: {problem.strerror}.", cure) from problem
    _check_private(folder, os.lstat(folder), stat.S_ISDIR, "700", error)


@contextmanager
def open_private(path: Path, error: ErrorClass = IdentityError) -> Iterator[BinaryIO]:
    """Open a private file (0600, no symlink) for reading. Raises `error`, also for a disk error inside the block."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as problem:
        if os.path.lexists(path):  # another's file, or a link, cannot be opened either: say so rather than why
            _check_private(path, os.lstat(path), stat.S_ISREG, "600", error)
        raise error(f"{path} cannot be opened: {problem.strerror}.", "Put it back from a backup.") from problem
    try:
        _check_private(path, os.fstat(fd), stat.S_ISREG, "600", error)
    except error:
        os.close(fd)
        raise
    with os.fdopen(fd, "rb") as file:
        try:
            yield file
        except OSError as problem:
            cure = "Check the disk (Disk Utility, First Aid), and put the file back from a backup."
            raise error(f"{path} cannot be read: {problem.strerror or problem}.", cure) from problem


def read_private(path: Path, error: ErrorClass = IdentityError) -> bytes:
    """Read a small private file (0600, no symlink). Raises `error`."""
    with open_private(path, error) as file:
        data = file.read(MAX_PRIVATE_FILE + 1)
    if len(data) > MAX_PRIVATE_FILE:
        raise error(f"{path} is too large to be what it should be.", "Put it back from a backup.")
    return data


@contextmanager
def replacing(path: Path, error: ErrorClass = IdentityError) -> Iterator[BinaryIO]:
    """Open a 0600 file that replaces `path` durably after the block, unless that raises. Raises `error`."""
    part = path.with_name(path.name + ".tmp")
    try:
        part.unlink(missing_ok=True)
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            yield file
            file.flush()
            to_disk(fd)
        move(part, path)
    except OSError as problem:
        what = f"{path} cannot be written: {problem.strerror or problem}."
        raise error(what, "Make room on the disk and try again.") from problem
    finally:
        part.unlink(missing_ok=True)


def write_private(path: Path, data: bytes, error: ErrorClass = IdentityError) -> None:
    """Write a 0600 file atomically, even if the power fails. Raises `error`."""
    with replacing(path, error) as file:
        file.write(data)


def move(source: Path, target: Path) -> None:
    """Move `source` to `target` durably. Raises OSError."""
    os.replace(source, target)
    folder_to_disk(target.parent)


def folder_to_disk(folder: Path) -> None:
    """Make changes of names in `folder` durable. Raises OSError."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        to_disk(fd)
    finally:
        os.close(fd)


def to_disk(fd: int) -> None:
    """fsync; macOS needs F_FULLFSYNC to flush the drive's cache, which takes it tens of milliseconds."""
    _sync(fd, getattr(fcntl, "F_FULLFSYNC", None))


def before_later(fd: int) -> None:
    """fsync, on a Mac without a flush of the drive's cache: only the order on disk is certain. End with `to_disk`."""
    _sync(fd, _F_BARRIERFSYNC if hasattr(fcntl, "F_FULLFSYNC") else None)


def _sync(fd: int, command: int | None) -> None:
    """Sync by a command of macOS, which some file systems don't support, or by fsync."""
    if command is not None:
        with suppress(OSError):
            fcntl.fcntl(fd, command)
            return
    os.fsync(fd)


def _check_private(
    path: Path, found: os.stat_result, is_kind: Callable[[int], bool], mode: str, error: ErrorClass
) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise error(f"{path} is a symbolic link, which is not followed.", "Replace it with what it points to.")
    if not is_kind(found.st_mode):
        raise error(f"{path} is not the kind of file that it should be.", f"Move it away: `mv {path} {path}.old`.")
    if found.st_uid != os.geteuid():
        raise error(f"{path} belongs to another user.", f"Make it yours: `sudo chown $(id -un) {path}`.")
    if found.st_mode & 0o077:
        raise error(f"Other users of this Mac can reach {path}.", f"Close it: `chmod {mode} {path}`.")
