"""Writes blocks of a model's files in any order, from several threads, and keeps the block map."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from core.errors import TransferError
from core.models.files import block_map
from core.settings import GB, MIB, Home
from core.trust.file_formats import check_not_newer
from core.trust.private_files import before_later, folder_to_disk, move, to_disk, write_private

STRIDE: Final = 4  # blocks read and hashed at once; fits a core's cache
KEPT_FREE_BYTES: Final = GB  # of the disk
COMMIT_BYTES: Final = 16 * MIB
MOST_PENDING_BYTES: Final = 4 * COMMIT_BYTES  # then writers wait for a slow disk


class WholeHash:
    """Hashes a file from its blocks. Thread-safe. `read(block, into)` rereads blocks that arrived out of order and
    returns the number of bytes read.
    """

    def __init__(self, facts: block_map.FileFacts, read: Callable[[int, memoryview], int]) -> None:
        self._facts, self._read = facts, read
        self._digest = hashlib.sha256()
        self._next = 0
        self._came = set[int]()
        self._turn, self._is_busy, self._is_of_use = threading.Lock(), False, True

    def add(self, block: int, data: bytes | memoryview) -> None:
        """Hash a block on disk, and later ones that came before it, once all earlier ones are there. Raises OSError."""
        with self._turn:
            self._is_of_use &= block not in self._came  # a second version may differ
            self._came.add(block)
            if self._is_busy or block != self._next:
                return
            self._is_busy = True
        self._digest.update(data)
        room: memoryview | None = None
        count = self._hashed(1)
        while count:
            room = room or memoryview(bytearray(STRIDE * block_map.BLOCK_BYTES))
            stretch = room[: min(count * block_map.BLOCK_BYTES, self._facts.size - self._next * block_map.BLOCK_BYTES)]
            if self._read(self._next, stretch) < len(stretch):  # another program changed the file
                self._is_of_use = False
                return
            self._digest.update(stretch)
            count = self._hashed(count)

    def _hashed(self, count: int) -> int:
        """Count `count` hashed blocks; returns how many of the next STRIDE blocks have arrived."""
        with self._turn:
            self._next += count
            more = 0
            while more < STRIDE and self._next + more in self._came:
                more += 1
            self._is_busy = more > 0
            return more

    @property
    def sha256(self) -> str | None:
        """Hex digest once each block has arrived exactly once; else None."""
        return self._digest.hexdigest() if self._is_of_use and self._next == len(self._facts.blocks) else None


def check_free(folder: Path, missing: int, kept: int = KEPT_FREE_BYTES) -> None:
    """Raise TransferError if the disk would have fewer than `kept` bytes left after `missing` bytes more."""
    free = shutil.disk_usage(folder).free
    if missing + kept > free:
        what = (
            f"{missing / GB:.1f} GB are missing; this disk has {free / GB:.1f} GB free, "
            f"{kept / GB:.1f} GB of it reserved: {(missing + kept - free) / GB:.1f} GB too little."
        )
        purgeable = " What Finder calls purgeable does not count: macOS frees it later." * (sys.platform == "darwin")
        raise TransferError(what, f"Free some space, then try again; it resumes.{purgeable}")


class BlockWriter:
    """Writes blocks of `files` into `directory`, which belongs to this program. Thread-safe.

    Continues an earlier download of the same files and deletes all other files. Raises OSError, and TransferError if
    the map is newer or cannot be written.
    """

    def __init__(self, directory: Path, files: Mapping[str, block_map.FileFacts]) -> None:
        self._directory, self._files = directory, dict(sorted(files.items()))
        self._head = block_map.head_of(self._files)
        self._turn, self._committing = threading.Lock(), threading.Lock()
        self._open: dict[str, int] = {}
        self._hashes = {name: WholeHash(facts, partial(self._read, name)) for name, facts in self._files.items()}
        self._pending: list[tuple[str, int, bytes]] = []
        self._pending_bytes = 0
        self._grown = set[str]()
        self.committed_bytes = 0  # by this writer
        check_not_newer(directory / block_map.MAP_NAME, Home.models.format, TransferError)
        if not self._is_begun():
            self._begin()
        found = block_map.read_map(directory)
        self._there = {name: self._sound(name, known) for name, known in found.hashes.items()} if found else {}
        block_map.write_map(directory, self.map)  # without torn or damaged blocks

    @property
    def map(self) -> block_map.BlockMap:
        """The blocks on disk at the last commit."""
        return block_map.BlockMap(self._files, self._there)

    def put(self, name: str, block: int, data: bytes | memoryview, expected: bytes = b"") -> bool:
        """Write a block, which counts after the next commit. False, without writing, if its hash isn't `expected`."""
        sha256 = hashlib.sha256(data).digest()
        if expected and sha256 != expected:
            return False
        with self._turn:
            fd = self._file(name)
        at, rest = block * block_map.BLOCK_BYTES, memoryview(data)
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
        """Sync all written blocks to disk and record them in the map; other threads go on writing."""
        with self._committing:
            self._commit()

    def close(self) -> None:
        """Commit, flush the drive's cache, and close the files."""
        try:
            self.commit()
            if self.committed_bytes:
                with (self._directory / block_map.MAP_NAME).open("rb") as file:
                    to_disk(file.fileno())
        finally:
            with self._turn:
                for fd in self._open.values():
                    os.close(fd)
                self._open.clear()

    def finish(self) -> None:
        """After `close`: check each completed file, set a full map aside. Raises TransferError for a damaged file."""
        lacks = self.map.missing_bytes > 0
        for name, facts in self._files.items():
            if lacks and (name not in self._grown or len(self._there[name]) < len(facts.blocks)):
                continue
            if self._sha256(name) != facts.sha256:
                self._there[name] = {}
                block_map.write_map(self._directory, self.map)
                what = f"{name} is damaged: its hash does not match."
                raise TransferError(what, "Download it again. Intact files are kept.")
        if not lacks:
            move(self._directory / block_map.MAP_NAME, self._directory / block_map.WHOLE_NAME)

    def _sha256(self, name: str) -> str:
        if found := self._hashes[name].sha256:
            return found
        with (self._directory / name).open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()

    def _is_begun(self) -> bool:
        """Whether the folder holds a map of the same files, each with its full length."""
        try:
            with (self._directory / block_map.MAP_NAME).open("rb") as file:
                is_same = file.read(len(self._head)) == self._head
            sizes = {name: (self._directory / name).lstat().st_size for name in self._files}
        except OSError:
            return False
        return is_same and all(sizes[name] == facts.size for name, facts in self._files.items())

    def _sound(self, name: str, known: Mapping[int, bytes]) -> dict[int, bytes]:
        """The blocks whose SHA-256 still matches."""
        with (self._directory / name).open("rb") as content:

            def sha256(block: int) -> bytes:
                data = os.pread(content.fileno(), self._files[name].length(block), block * block_map.BLOCK_BYTES)
                return hashlib.sha256(data).digest()

            return {block: said for block, said in known.items() if sha256(block) == said}

    def _read(self, name: str, block: int, into: memoryview) -> int:
        with self._turn:
            fd = self._file(name)
        return os.preadv(fd, [into], block * block_map.BLOCK_BYTES)

    def _begin(self) -> None:
        (self._directory / block_map.MAP_NAME).unlink(missing_ok=True)
        folder_to_disk(self._directory)  # an old map that comes back would declare holes as blocks
        for left in self._directory.iterdir():
            left.unlink()
        for name, facts in self._files.items():
            fd = os.open(self._directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                os.ftruncate(fd, facts.size)
                to_disk(fd)
            finally:
                os.close(fd)
        write_private(self._directory / block_map.MAP_NAME, self._head, TransferError)

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
            before_later(fd)
        with (self._directory / block_map.MAP_NAME).open("ab", buffering=0) as file:
            file.write(block_map.records_of(self._files, self._head, pending))
            before_later(file.fileno())
        for name, block, sha256 in pending:
            self._there[name][block] = sha256
            self._grown.add(name)
        self.committed_bytes += nbytes
