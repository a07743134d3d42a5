"""Every state of a folder after a power cut in the middle of a real writer's work.

Files are made, written, forced to disk, moved and removed as usual; the folder is examined after each step. Each state
is possible after a cut, also with a write cut in half, and without all data that was not forced to disk.
"""

from __future__ import annotations

import builtins
import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

State = tuple[tuple[str, bytes], ...]
_STEPS = ("fsync", "pwrite", "ftruncate", "write", "replace", "rename", "unlink", "remove", "mkdir", "rmdir", "open")


class _File(NamedTuple):
    inode: int
    content: bytes


class PowerCuts:
    """The possible states of `folder`: names of files and folders (these end with a slash) with contents."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._now = self._look()
        self._forced = {file.inode: file.content for file in self._now.values()}
        self.states: list[State] = []
        self._keep(self._now)

    def stepped(self, forced: int | None = None) -> None:
        """Record a step; the content of the open file `forced` is on disk now."""
        before, self._now = self._now, self._look()
        for name in self._now.keys() - before.keys():
            if all(self._now[name].inode != old.inode for old in before.values()):
                self._forced[self._now[name].inode] = b""
        if forced is not None:
            there = os.fstat(forced)
            self._forced |= {f.inode: f.content for f in self._now.values() if f.inode == there.st_ino}
        for name, file in self._now.items():
            old = before.get(name, file)
            if old.inode == file.inode and (more := len(file.content) - len(old.content)) > 1:
                self._keep({**self._now, name: _File(file.inode, file.content[: len(file.content) - more // 2])})
        self._keep(self._now)
        lost = {name: _File(f.inode, self._forced.get(f.inode, b"")) for name, f in self._now.items()}
        self._keep({name: f if name.endswith("/") else lost[name] for name, f in self._now.items()})

    def restore(self, state: State, folder: Path) -> None:
        """Put `folder` into that state."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        for name, content in state:
            path = folder / name
            if name.endswith("/"):
                path.mkdir(mode=0o700, exist_ok=True)
            else:
                path.touch(mode=0o600)
                path.write_bytes(content)

    def _look(self) -> dict[str, _File]:
        found = {}
        for path in sorted(self._folder.rglob("*")):
            name, inode = str(path.relative_to(self._folder)), path.lstat().st_ino
            found[f"{name}/" if path.is_dir() else name] = _File(inode, b"" if path.is_dir() else path.read_bytes())
        return found

    def _keep(self, found: dict[str, _File]) -> None:
        state = tuple((name, file.content) for name, file in found.items())
        if state not in self.states:
            self.states.append(state)


@contextmanager
def power_cuts(folder: Path) -> Iterator[PowerCuts]:
    """Gather the possible states of `folder` after a cut in the middle of the block."""
    cuts, depth = PowerCuts(folder), [0]
    opened, steps = io.open, {name: getattr(os, name) for name in _STEPS}

    class Raw(io.FileIO):
        def write(self, data: Any, /) -> int:
            count = super().write(data)
            cuts.stepped()
            return count

    def writing(file: Any, mode: str = "r", buffering: int = -1, *more: Any, **how: Any) -> Any:
        if depth[0] or how.get("opener") or set(mode).isdisjoint("wax+"):
            return opened(file, mode, buffering, *more, **how)
        raw = Raw(file, mode.replace("b", "").replace("t", ""))
        cuts.stepped()
        if "b" not in mode:
            return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8")
        return io.BufferedWriter(raw) if buffering else raw

    def step(name: str) -> Callable[..., Any]:
        def done(*arguments: Any, **how: Any) -> Any:
            if depth[0]:
                return steps[name](*arguments, **how)
            depth[0] += 1
            try:
                result = steps[name](*arguments, **how)
                cuts.stepped(arguments[0] if name == "fsync" else None)
            finally:
                depth[0] -= 1
            return result

        return done

    with pytest.MonkeyPatch.context() as patched:
        patched.delattr("fcntl.F_FULLFSYNC", raising=False)
        for name in _STEPS:
            patched.setattr(os, name, step(name))
        patched.setattr(io, "open", writing)
        patched.setattr(builtins, "open", writing)
        yield cuts
