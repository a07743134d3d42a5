"""Which blocks of a model's files are on this disk, where not all are: the file `.blocks` beside them.

The files have their full length from the start, and holes where nothing has come. The map is a line of JSON, which
files there are, and behind it a record a block: file u32 | block u32 | SHA-256 of the block | 8 bytes of SHA-256 over
all of that. A record is written after its block is on disk, so what the map says is there survives kill -9 and a power
cut; one that is torn or bent is a block that is not there. When all is there the map becomes `.fetched`: then nothing
lacks, and the folder is one that macluster wrote.
"""

from __future__ import annotations

import hashlib
import os
import struct
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from core.errors import BadModel, TransferError
from core.events import Value
from core.models.files.folder import name_of
from core.models.files.parts import Part
from core.numbers import Size
from core.settings import MIB
from core.trust.files import folder_to_disk, move, to_disk, write_private

# the same on every Mac, as what one says of a block is good for all; five parts of it fill five messages
BLOCK_BYTES: Final = 5 * 48 * 1024
MAP_NAME: Final = ".blocks"
WHOLE_NAME: Final = ".fetched"
MAX_HEAD_BYTES: Final = MIB
MAX_RECORDS_BYTES: Final = 256 * MIB
COMMIT_BYTES: Final = 16 * MIB
MOST_PENDING_BYTES: Final = 4 * COMMIT_BYTES  # while a slow disk takes what came before

_RECORD: Final = struct.Struct("<II32s8s")
_CHECKED: Final = _RECORD.size - 8

Sha256 = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]


class FileFacts(Value, frozen=True, kw_only=True):
    """A whole file of a model: its size in bytes and its hash, hex."""

    size: Size
    sha256: Sha256

    @property
    def blocks(self) -> range:
        """The numbers of its blocks, the last of which may be shorter than the others."""
        return range(-(-self.size // BLOCK_BYTES))

    def length(self, block: int) -> int:
        """Bytes of one of its blocks."""
        return min(BLOCK_BYTES, self.size - block * BLOCK_BYTES)


class _Head(Value, frozen=True, kw_only=True):
    format: Literal[1] = 1
    files: dict[str, FileFacts]


class BlockMap:
    """Which blocks of `files` are there, with the SHA-256 of each: `hashes[file][block]`."""

    def __init__(self, files: Mapping[str, FileFacts], hashes: Mapping[str, Mapping[int, bytes]]) -> None:
        self.files = files
        self.hashes = hashes

    @property
    def missing_bytes(self) -> int:
        """What is not there, of all files."""
        return sum(facts.size for facts in self.files.values()) - self.there_bytes

    @property
    def there_bytes(self) -> int:
        """What is there, of all files."""
        return sum(self.files[name].length(block) for name, known in self.hashes.items() for block in known)

    def lacking(self, parts: Iterable[Part]) -> tuple[Part, ...]:
        """What of `parts` is not there. A file that the map does not know is there."""
        return tuple(lack for part in parts if part.file in self.files for lack in self._lacking(part))

    def _lacking(self, part: Part) -> Iterable[Part]:
        known = self.hashes.get(part.file, {})
        begin = None
        for block in blocks_of(part):
            if block in known:
                if begin is not None:
                    yield Part(file=part.file, begin=begin, end=block * BLOCK_BYTES)
                begin = None
            elif begin is None:
                begin = max(part.begin, block * BLOCK_BYTES)
        if begin is not None:
            yield Part(file=part.file, begin=begin, end=part.end)


def blocks_of(part: Part) -> range:
    """The blocks of its file that hold a byte of `part`."""
    return range(part.begin // BLOCK_BYTES, -(-part.end // BLOCK_BYTES) if part.nbytes else 0)


def whole_parts(files: Mapping[str, FileFacts]) -> tuple[Part, ...]:
    """All bytes of `files`."""
    return tuple(Part(file=name, begin=0, end=facts.size) for name, facts in files.items())


def read_map(directory: Path, name: str = MAP_NAME) -> BlockMap | None:
    """The map in a model's folder, or None where there is none: all is there then. Raises BadModel."""
    try:
        fd = os.open(directory / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadModel(f"{name} in {name_of(directory)} cannot be read: {error.strerror}.") from error
    try:
        with open(fd, "rb") as file:
            line, records = file.readline(MAX_HEAD_BYTES), file.read(MAX_RECORDS_BYTES)
        head = msgspec.json.decode(line, type=_Head)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadModel(f"{name} in {name_of(directory)} is damaged.") from error
    return BlockMap(head.files, _hashes(line, head.files, records))


def read_written(directory: Path) -> BlockMap | None:
    """What of the folder macluster has written, whether all of it is there or not; None where it was not macluster.
    Raises BadModel.
    """
    return read_map(directory) or read_map(directory, WHOLE_NAME)


def write_map(directory: Path, there: BlockMap) -> None:
    """In the place of the map that was there, on disk when this returns. Raises TransferError."""
    head = _head_of(there.files)
    known = [(name, block, sha256) for name, blocks in there.hashes.items() for block, sha256 in blocks.items()]
    write_private(directory / MAP_NAME, head + _records(there.files, head, known), TransferError)


def _head_of(files: Mapping[str, FileFacts]) -> bytes:
    return msgspec.json.encode(_Head(files=dict(files))) + b"\n"


def _records(files: Mapping[str, FileFacts], head: bytes, blocks: Iterable[tuple[str, int, bytes]]) -> bytes:
    numbers, seed = {name: number for number, name in enumerate(files)}, hashlib.sha256(head)
    packed = (_RECORD.pack(numbers[name], block, sha256, b"")[:_CHECKED] for name, block, sha256 in blocks)
    return b"".join(record + _check(seed, record) for record in packed)


def _hashes(line: bytes, files: Mapping[str, FileFacts], records: bytes) -> dict[str, dict[int, bytes]]:
    names, seed = tuple(files), hashlib.sha256(line)
    found: dict[str, dict[int, bytes]] = {name: {} for name in names}
    for at in range(0, len(records) - _RECORD.size + 1, _RECORD.size):
        record = records[at : at + _RECORD.size]
        file, block, sha256, check = _RECORD.unpack(record)
        if check == _check(seed, record[:_CHECKED]) and file < len(names) and block in files[names[file]].blocks:
            found[names[file]][block] = sha256
    return found


def _check(seed: hashlib._Hash, record: bytes) -> bytes:
    digest = seed.copy()  # of this map: a record of another one is none
    digest.update(record)
    return digest.digest()[:8]


class BlockWriter:
    """Writes blocks of `files` into `directory`, which is this program's alone; what an earlier one has left there of
    the same files is gone on with, all else is removed. Threads may share it. Raises OSError, and TransferError where
    the map cannot be written.
    """

    def __init__(self, directory: Path, files: Mapping[str, FileFacts]) -> None:
        self._directory, self._files = directory, dict(sorted(files.items()))
        self._head = _head_of(self._files)
        self._turn, self._committing = threading.Lock(), threading.Lock()
        self._open: dict[str, int] = {}
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
            with (self._directory / name).open("rb") as content:
                if hashlib.file_digest(content, "sha256").hexdigest() != facts.sha256:
                    self._there[name] = {}
                    write_map(self._directory, self.map)
                    what = f"{name} arrived damaged: all of it is here, and is not what it should be."
                    raise TransferError(what, "Fetch it again: what is whole is kept.")
        if not lacks:
            move(self._directory / MAP_NAME, self._directory / WHOLE_NAME)

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
            self._open[name] = os.open(self._directory / name, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
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
            file.write(_records(self._files, self._head, pending))
            to_disk(file.fileno())
        for name, block, sha256 in pending:
            self._there[name][block] = sha256
            self._grown.add(name)
        self.committed_bytes += nbytes
