"""A disk that fails every read of one file, as with a bad block; the file still opens."""

from __future__ import annotations

import builtins
import errno
import io
import os
from pathlib import Path
from typing import Any

import pytest


class _Bad(io.FileIO):
    def read(self, size: int | None = -1, /) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO), self.name)

    def readall(self) -> Any:
        self.read()

    def readinto(self, buffer: Any, /) -> Any:
        self.read()


def make_unreadable(monkeypatch: pytest.MonkeyPatch, *paths: Path) -> None:
    """Make reads of `paths` fail in this process."""
    opened = io.open

    def is_bad(file: Any) -> bool:
        if isinstance(file, int):
            there = os.fstat(file)
            return any(path.exists() and os.path.samestat(there, path.stat()) for path in paths)
        return os.path.exists(file) and any(path.exists() and os.path.samefile(file, path) for path in paths)

    def bad(file: Any, mode: str = "r", buffering: int = -1, *more: Any, **how: Any) -> Any:
        if not set(mode).isdisjoint("wax+") or not is_bad(file):
            return opened(file, mode, buffering, *more, **how)
        raw = _Bad(file)
        if "b" not in mode:
            return io.TextIOWrapper(io.BufferedReader(raw))
        return io.BufferedReader(raw) if buffering else raw

    monkeypatch.setattr(io, "open", bad)
    monkeypatch.setattr(builtins, "open", bad)
