"""What a model's files hold, as SHA-256 of each: two Macs that agree on them run the same model."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from core.errors import BadModel, ModelError, ModelNotFound, TrustError
from core.models.files.block_map import BLOCK_BYTES, BlockMap, FileFacts, read_map
from core.models.files.checked_files import inside, judged, name_of, read_bytes
from core.models.files.safetensors import DECIDING_FILES, INDEX_NAME, parse_index, weight_files
from core.settings import MIB
from core.trust.private_files import write_private

PIECE_BYTES: Final = MIB
MAX_CACHE_BYTES: Final = 16 * MIB
_TURN_S: Final = 0.05


class _Seen(msgspec.Struct, frozen=True):
    """A file as it was when it was hashed. The time of its last change catches a writer that puts the mtime back.
    `blocks`: how many of a file that is there in part.
    """

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    sha256: str
    blocks: int | None = None


class Manifests:
    """Hashes the files of models, each once as long as it does not change; remembers in the file `cache`.

    Threads may share it: one hashes, the others wait and find what it left.
    """

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._seen: dict[str, _Seen] | None = None
        self._turn = threading.Lock()

    def of(self, directory: Path, stop: Callable[[], bool] = lambda: False) -> dict[str, str]:
        """File name -> hex SHA-256 of every file that decides a model's answers: settings, tokenizer, weights.

        Reads all of it, 1 MiB at a time; `stop` is asked between the pieces. Of a file that is there in part, each
        block that is there is compared with what the map says of it, and the hash is that of the whole file, as the map
        has it. Raises ModelNotFound, BadModel, and ModelError when it was stopped.
        """
        if not directory.is_dir():
            raise ModelNotFound(f"There is no model directory {directory}.")
        while not self._turn.acquire(timeout=_TURN_S):
            _check_stop(stop)
        try:
            seen = self._seen = _remembered(self._cache) if self._seen is None else self._seen
            before = dict(seen)
            try:
                with judged(directory):
                    there = read_map(directory)
                    return {file.name: _sha256(file, there, seen, stop) for file in _deciding(directory)}
            finally:
                if seen != before:
                    self._write(seen)
        finally:
            self._turn.release()

    def _write(self, seen: dict[str, _Seen]) -> None:
        for gone in [path for path in seen if not Path(path).is_file()]:
            del seen[gone]
        # without room on the disk the files are hashed again after the next start
        with contextlib.suppress(TrustError):
            write_private(self._cache, msgspec.json.encode(seen))


def differing(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str | None:
    """The first file, by name, that two manifests do not agree on, or that one of them lacks; None if there is none."""
    return next((name for name in sorted(ours.keys() | theirs.keys()) if ours.get(name) != theirs.get(name)), None)


def _deciding(directory: Path) -> list[Path]:
    beside = [directory / name for name in DECIDING_FILES if inside(directory, name).is_file()]
    index = parse_index(read_bytes(directory, INDEX_NAME), name_of(directory))
    return [*beside, *weight_files(directory, index)]


def _sha256(file: Path, there: BlockMap | None, seen: dict[str, _Seen], stop: Callable[[], bool]) -> str:
    path = str(file.resolve())
    blocks = there.hashes.get(file.name) if there else None
    try:
        # a pipe would let the reader wait for ever
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb", buffering=0) as opened:
            before = os.fstat(fd)
            known = seen.get(path)
            if known and known == _note(before, known.sha256, blocks):
                return known.sha256
            if there is None or blocks is None:
                sha256 = _hashed(opened, stop)
            else:
                sha256 = _checked(opened, file, there.files[file.name], blocks, stop)
            found = _note(before, sha256, blocks)
            changed = _note(os.fstat(fd), sha256, blocks) != found
    except OSError as error:
        raise BadModel(f"{file.name} in {name_of(file.parent)} cannot be read: {error.strerror}.") from error
    if changed:
        raise BadModel(f"{file.name} in {name_of(file.parent)} changed while it was read.", "Load the model again.")
    seen[path] = found
    return found.sha256


def _hashed(file: io.FileIO, stop: Callable[[], bool]) -> str:
    digest = hashlib.sha256()
    piece = memoryview(bytearray(PIECE_BYTES))
    while count := file.readinto(piece):
        digest.update(piece[:count])
        _check_stop(stop)
    return digest.hexdigest()


def _checked(
    opened: io.FileIO, file: Path, facts: FileFacts, blocks: Mapping[int, bytes], stop: Callable[[], bool]
) -> str:
    """The hash of a file of which `blocks` are there, if these are what the map says, or all of it is what it should
    be.
    """
    if len(blocks) == len(facts.blocks):
        if _hashed(opened, stop) != facts.sha256:
            raise BadModel(
                f"{file.name} in {name_of(file.parent)} is not what should have been fetched.",
                "Delete that folder, then fetch the model again.",
            )
        return facts.sha256
    for block, sha256 in sorted(blocks.items()):
        data = os.pread(opened.fileno(), facts.length(block), block * BLOCK_BYTES)
        if hashlib.sha256(data).digest() != sha256:
            raise BadModel(f"{file.name} in {name_of(file.parent)} is not what was fetched: block {block} differs.")
        _check_stop(stop)
    return facts.sha256


def _note(status: os.stat_result, sha256: str, blocks: Mapping[int, bytes] | None) -> _Seen:
    count = None if blocks is None else len(blocks)
    return _Seen(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, sha256, count)


def _check_stop(stop: Callable[[], bool]) -> None:
    if stop():
        raise ModelError("Hashing the model's files was stopped.")


def _remembered(cache: Path) -> dict[str, _Seen]:
    """What an earlier node left; nothing if that cannot be trusted to be what it wrote."""
    try:
        fd = os.open(cache, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            status = os.fstat(fd)
            if status.st_uid != os.geteuid() or status.st_mode & 0o077 or status.st_size > MAX_CACHE_BYTES:
                return {}
            return msgspec.json.decode(file.read(), type=dict[str, _Seen])
    except (OSError, msgspec.MsgspecError):
        return {}
