"""Files that are one user's alone, written so that they are there whole or not at all."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from core.errors import IdentityError, TrustError

MAX_PRIVATE_FILE: Final = 64 * 1024


def private_folder(folder: Path, error: type[TrustError] = IdentityError) -> None:
    """Make sure that `folder` is there, is no symlink, and is this user's alone (0700). Raises `error`."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        raise error(
            f"{folder} cannot be made: {problem.strerror}.", "Make room there, or mend its parent."
        ) from problem
    _check_private(folder, os.lstat(folder), stat.S_ISDIR, "700", error)


def read_private(path: Path, error: type[TrustError] = IdentityError) -> bytes:
    """The bytes of a file that is this user's alone (0600) and no symlink. Raises `error`."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as problem:
        cure = "Put it back from a backup; a symbolic link is not taken."
        raise error(f"{path} cannot be opened: {problem.strerror}.", cure) from problem
    with os.fdopen(fd, "rb") as file:
        _check_private(path, os.fstat(fd), stat.S_ISREG, "600", error)
        data = file.read(MAX_PRIVATE_FILE + 1)
    if len(data) > MAX_PRIVATE_FILE:
        raise error(f"{path} is too large to be what it should be.")
    return data


def write_private(path: Path, data: bytes, error: type[TrustError] = IdentityError) -> None:
    """Write a 0600 file so that it is there whole or not at all, even if the power fails. Raises `error`."""
    part = path.with_name(path.name + ".tmp")
    try:
        part.unlink(missing_ok=True)
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            _to_disk(fd)
        part.replace(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _to_disk(folder)
        finally:
            os.close(folder)
    except OSError as problem:
        part.unlink(missing_ok=True)
        raise error(
            f"{path} cannot be written: {problem.strerror}.", "Make room on the disk and try again."
        ) from problem


def _to_disk(fd: int) -> None:
    """fsync; macOS needs F_FULLFSYNC to get past the drive's cache, which not every file system takes."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        try:
            fcntl.fcntl(fd, full)
        except OSError:
            os.fsync(fd)
    else:
        os.fsync(fd)


def _check_private(
    path: Path, found: os.stat_result, is_kind: Callable[[int], bool], mode: str, error: type[TrustError]
) -> None:
    if not is_kind(found.st_mode):
        raise error(f"{path} is not what it should be (a symbolic link?).", f"Remove it: `rm {path}`.")
    if found.st_uid != os.geteuid():
        raise error(f"{path} belongs to another user.", f"Make it yours: `sudo chown $(id -un) {path}`.")
    if found.st_mode & 0o077:
        raise error(f"Other users of this Mac can reach {path}.", f"Close it: `chmod {mode} {path}`.")
