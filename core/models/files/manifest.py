"""SHA-256 of each file of a model: two Macs with equal manifests run the same model."""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from core.errors import BadModel, ModelError, ModelNotFound
from core.models.files.block_map import BLOCK_BYTES, START_AGAIN, BlockMap, FileFacts, read_map
from core.models.files.checked_files import UNREADABLE, inside, judged, name_of
from core.models.files.safetensors import DECIDING_FILES, read_index, weight_files
from core.settings import MIB, Home
from core.trust.file_formats import JsonFile

PIECE_BYTES: Final = MIB
MAX_CACHE_BYTES: Final = 16 * MIB
_TURN_S: Final = 0.05


class _Seen(msgspec.Struct, frozen=True):
    """State of a file when it was hashed. `ctime_ns` reveals a writer that restores the mtime; `blocks` counts the
    blocks of a partial file.
    """

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    sha256: str
    blocks: int | None = None


_FILE: Final = JsonFile[dict[str, _Seen]](Home.hashes, dict[str, _Seen], limit=MAX_CACHE_BYTES)


class Manifests:
    """Hashes model files, each again only after a change; stores the hashes in the file `cache`. Thread-safe."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._seen: dict[str, _Seen] | None = None
        self._turn = threading.Lock()

    def of(self, directory: Path, stop: Callable[[], bool] = lambda: False) -> dict[str, str]:
        """Hex SHA-256 by name, for every file that decides the answers: settings, tokenizer, weights.

        Reads all files in pieces of 1 MiB and calls `stop` between them. The blocks of a partial file are checked
        against the map, and its hash is the one of the whole file from the map. Raises ModelNotFound, BadModel, and
        ModelError when stopped.
        """
        if not directory.is_dir():
            raise ModelNotFound(f"The model folder {directory} doesn't exist.")
        while not self._turn.acquire(timeout=_TURN_S):
            _check_stop(stop)
        try:
            # a file that is malformed, newer, or not private counts as empty
            seen = self._seen = (_FILE.try_to_read(self._cache) or {}) if self._seen is None else self._seen
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
        _FILE.try_to_write(self._cache, seen)  # if the disk is full, the files are hashed again after the next start


def differing(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str | None:
    """First file, by name, that two manifests disagree on or one lacks; None if they are equal."""
    return next((name for name in sorted(ours.keys() | theirs.keys()) if ours.get(name) != theirs.get(name)), None)


def _deciding(directory: Path) -> list[Path]:
    beside = [directory / name for name in DECIDING_FILES if inside(directory, name).is_file()]
    return [*beside, *weight_files(directory, read_index(directory))]


def _sha256(file: Path, there: BlockMap | None, seen: dict[str, _Seen], stop: Callable[[], bool]) -> str:
    path = str(file.resolve())
    blocks = there.hashes.get(file.name) if there else None
    try:
        # a pipe would block the reader forever
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
        what = f"{file.name} in {name_of(file.parent)} cannot be read: {error.strerror}."
        raise BadModel(what, UNREADABLE) from error
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
    """Hash of a partial or complete downloaded file, after checking its `blocks` against the map."""
    if len(blocks) == len(facts.blocks):
        if _hashed(opened, stop) != facts.sha256:
            raise BadModel(f"{file.name} in {name_of(file.parent)} differs from the downloaded file.", START_AGAIN)
        return facts.sha256
    for block, sha256 in sorted(blocks.items()):
        data = os.pread(opened.fileno(), facts.length(block), block * BLOCK_BYTES)
        if hashlib.sha256(data).digest() != sha256:
            what = f"{file.name} in {name_of(file.parent)} has changed since its download: block {block}."
            raise BadModel(what, START_AGAIN)
        _check_stop(stop)
    return facts.sha256


def _note(status: os.stat_result, sha256: str, blocks: Mapping[int, bytes] | None) -> _Seen:
    count = None if blocks is None else len(blocks)
    return _Seen(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, sha256, count)


def _check_stop(stop: Callable[[], bool]) -> None:
    if stop():
        raise ModelError("Hashing the model's files was stopped.")
