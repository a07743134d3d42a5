"""Writes blocks of a model's files, in any order and from several threads, and keeps their map beside them."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from core.errors import TransferError
from core.models.files.block_map import (
    BLOCK_BYTES,
    MAP_NAME,
    WHOLE_NAME,
    BlockMap,
    FileFacts,
    head_of,
    read_map,
    records_of,
    write_map,
)
from core.models.files.whole_hash import WholeHash
from core.settings import MIB
from core.trust.private_files import folder_to_disk, move, to_disk, write_private

COMMIT_BYTES: Final = 16 * MIB
MOST_PENDING_BYTES: Final = 4 * COMMIT_BYTES  # while a slow disk takes what came before


class BlockWriter:
    """Writes blocks of `files` into `directory`, which is this program's alone; what an earlier one has left there of
    the same files is gone on with, all else is removed. Threads may share it. Raises OSError, and TransferError where
    the map cannot be written.
    """

    def __init__(self, directory: Path, files: Mapping[str, FileFacts]) -> None:
        self._directory, self._files = directory, dict(sorted(files.items()))
        self._head = head_of(self._files)
        self._turn, self._committing = threading.Lock(), threading.Lock()
        self._open: dict[str, int] = {}
        self._hashes = {name: WholeHash(facts, partial(self._read, name)) for name, facts in self._files.items()}
        self._pending: list[tuple[str, int, bytes]] = []
        self._pending_bytes = 0
        self._grown = set[str]()
        self.committed_bytes = 0  # by this one
        if not self._is_begun():
            self._begin()
        found = read_map(directory)
        self._there = {name: self._sound(name, known) for name, known in found.hashes.items()} if found else {}
        write_map(directory, self.map)  # without what is torn, or has gone bad since

    @property
    def map(self) -> BlockMap:
        """What is there, as of the last commit."""
        return BlockMap(self._files, self._there)

    def put(self, name: str, block: int, data: bytes | memoryview, expected: bytes = b"") -> bool:
        """Write one block; it counts after the next commit. Whether it is `expected`, a SHA-256, where one is given;
        else nothing is written.
        """
        sha256 = hashlib.sha256(data).digest()
        if expected and sha256 != expected:
            return False
        with self._turn:
            fd = self._file(name)
        at, rest = block * BLOCK_BYTES, memoryview(data)
        while rest:
            count = os.pwrite(fd, rest, at)
            at, rest = at + count, rest[count:]
        self._hashes[name].add(block, data)
        with self._turn:
            self._pending.append((name, block, sha256))
            self._pending_bytes += len(data)
            waits = self._pending_bytes
        if waits >= COMMIT_BYTES and self._committing.acquire(blocking=waits >= MOST_PENDING_BYTES):
            try:
                self._commit()
            finally:
                self._committing.release()
        return True

    def commit(self) -> None:
        """What was put is on disk, and counts, when this returns; other threads write on meanwhile."""
        with self._committing:
            self._commit()

    def close(self) -> None:
        """Commit, and let go of the files."""
        try:
            self.commit()
        finally:
            with self._turn:
                for fd in self._open.values():
                    os.close(fd)
                self._open.clear()

    def finish(self) -> None:
        """This is closed: check the own hash of each file that has become whole, and set the map aside where nothing
        lacks any more. Raises TransferError, with the damaged file gone.
        """
        lacks = self.map.missing_bytes > 0
        for name, facts in self._files.items():
            if lacks and (name not in self._grown or len(self._there[name]) < len(facts.blocks)):
                continue
            if self._sha256(name) != facts.sha256:
                self._there[name] = {}
                write_map(self._directory, self.map)
                what = f"{name} arrived damaged: all of it is here, and is not what it should be."
                raise TransferError(what, "Fetch it again: what is whole is kept.")
        if not lacks:
            move(self._directory / MAP_NAME, self._directory / WHOLE_NAME)

    def _sha256(self, name: str) -> str:
        if found := self._hashes[name].sha256:
            return found
        with (self._directory / name).open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()

    def _is_begun(self) -> bool:
        """Whether what lies there is of the same files, and each has its length."""
        try:
            with (self._directory / MAP_NAME).open("rb") as file:
                is_same = file.read(len(self._head)) == self._head
            sizes = {name: (self._directory / name).lstat().st_size for name in self._files}
        except OSError:
            return False
        return is_same and all(sizes[name] == facts.size for name, facts in self._files.items())

    def _sound(self, name: str, known: Mapping[int, bytes]) -> dict[int, bytes]:
        """Those blocks that the disk still has as they were fetched."""
        with (self._directory / name).open("rb") as content:

            def sha256(block: int) -> bytes:
                data = os.pread(content.fileno(), self._files[name].length(block), block * BLOCK_BYTES)
                return hashlib.sha256(data).digest()

            return {block: said for block, said in known.items() if sha256(block) == said}

    def _read(self, name: str, block: int, into: memoryview) -> int:
        with self._turn:
            fd = self._file(name)
        return os.preadv(fd, [into], block * BLOCK_BYTES)

    def _begin(self) -> None:
        (self._directory / MAP_NAME).unlink(missing_ok=True)
        folder_to_disk(self._directory)  # that map must not come back to stand for holes
        for left in self._directory.iterdir():
            left.unlink()
        for name, facts in self._files.items():
            fd = os.open(self._directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                os.ftruncate(fd, facts.size)
                to_disk(fd)
            finally:
                os.close(fd)
        write_private(self._directory / MAP_NAME, self._head, TransferError)

    def _file(self, name: str) -> int:
        if name not in self._open:
            self._open[name] = os.open(self._directory / name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        return self._open[name]

    def _commit(self) -> None:
        with self._turn:
            pending, self._pending = self._pending, []
            nbytes, self._pending_bytes = self._pending_bytes, 0
            files = {self._file(name) for name, _, _ in pending}
        if not pending:
            return
        for fd in files:
            to_disk(fd)
        with (self._directory / MAP_NAME).open("ab", buffering=0) as file:
            file.write(records_of(self._files, self._head, pending))
            to_disk(file.fileno())
        for name, block, sha256 in pending:
            self._there[name][block] = sha256
            self._grown.add(name)
        self.committed_bytes += nbytes
