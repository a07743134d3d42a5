"""The file `.blocks` in a model folder: the blocks of an incomplete model that are on this disk.

Model files have their full length from the start, with holes for missing blocks. The map is one line of JSON with the
files, then one record per block: file u32 | block u32 | SHA-256 of the block | 8 bytes of SHA-256 over the first line
and the record. A record is written after its block is on disk, so the map survives kill -9 and a power cut; a torn or
damaged record counts as a missing block. The map of a complete model is renamed to `.fetched`, which marks a folder
that macluster wrote.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Final

import msgspec

from core.errors import BadModel, TransferError
from core.events import Value
from core.models.files.checked_files import UNREADABLE, name_of
from core.models.files.parts import Part, ranges
from core.numbers import Size
from core.settings import MIB, Home
from core.trust.file_formats import check_format, format_of
from core.trust.private_files import write_private

# the same on every Mac, because Macs exchange block hashes; five parts of a block fill five messages
BLOCK_BYTES: Final = 5 * 48 * 1024
HASH_BYTES: Final = 32  # of a SHA-256
MAP_NAME: Final = ".blocks"
WHOLE_NAME: Final = ".fetched"
MAX_HEAD_BYTES: Final = MIB
MAX_RECORDS_BYTES: Final = 256 * MIB
START_AGAIN: Final = "Delete that folder, then download the model again."

_RECORD: Final = struct.Struct("<II32s8s")
_CHECKED: Final = _RECORD.size - 8

Sha256 = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]


class FileFacts(Value, frozen=True, kw_only=True):
    """Size in bytes and SHA-256 (hex) of a whole file of a model."""

    size: Size
    sha256: Sha256

    @property
    def blocks(self) -> range:
        """Block numbers; the last block may be shorter."""
        return range(-(-self.size // BLOCK_BYTES))

    def length(self, block: int) -> int:
        return min(BLOCK_BYTES, self.size - block * BLOCK_BYTES)


class _Head(Value, frozen=True, kw_only=True):
    format: int = Home.models.format
    files: dict[str, FileFacts]


class BlockMap:
    """The blocks of `files` on this disk, with the SHA-256 of each: `hashes[file][block]`."""

    def __init__(self, files: Mapping[str, FileFacts], hashes: Mapping[str, Mapping[int, bytes]]) -> None:
        self.files = files
        self.hashes = hashes

    @property
    def missing_bytes(self) -> int:
        return sum(facts.size for facts in self.files.values()) - self.there_bytes

    @property
    def there_bytes(self) -> int:
        return self.nbytes_of(self.hashes)

    def nbytes_of(self, blocks: Mapping[str, Iterable[int]]) -> int:
        return sum(self.files[name].length(block) for name, numbers in blocks.items() for block in numbers)

    def missing(self, parts: Iterable[Part]) -> dict[str, set[int]]:
        """Missing blocks with bytes of `parts`, by file."""
        return {name: blocks - self.hashes.get(name, {}).keys() for name, blocks in blocks_by_file(parts).items()}

    def lacking(self, parts: Iterable[Part]) -> tuple[Part, ...]:
        """Ranges of `parts` that are missing; a file that isn't in the map counts as complete."""
        return tuple(
            Part(file=part.file, begin=max(part.begin, start * BLOCK_BYTES), end=min(part.end, stop * BLOCK_BYTES))
            for part in parts
            if part.file in self.files
            for start, stop in ranges(sorted(self.missing([part])[part.file]))
        )


def hash_at(hashes: bytes | bytearray | memoryview, block: int) -> bytes:
    """SHA-256 of a block in the concatenated hashes of a file; empty if they end before it."""
    return bytes(hashes[block * HASH_BYTES : (block + 1) * HASH_BYTES])


def blocks_of(part: Part) -> range:
    return range(part.begin // BLOCK_BYTES, -(-part.end // BLOCK_BYTES) if part.nbytes else 0)


def blocks_by_file(parts: Iterable[Part]) -> dict[str, set[int]]:
    blocks: dict[str, set[int]] = {}
    for part in parts:
        blocks.setdefault(part.file, set()).update(blocks_of(part))
    return blocks


def whole_parts(files: Mapping[str, FileFacts]) -> tuple[Part, ...]:
    return tuple(Part(file=name, begin=0, end=facts.size) for name, facts in files.items())


def read_map(directory: Path, name: str = MAP_NAME) -> BlockMap | None:
    """Read the map of a model folder; None for a complete model without a map. Raises BadModel."""
    try:
        line, files, records = read_list(directory, name)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadModel(f"{name} in {name_of(directory)} cannot be read: {error.strerror}.", UNREADABLE) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadModel(f"{name} in {name_of(directory)} is damaged.", START_AGAIN) from error
    return BlockMap(files, _hashes(line, files, records))


def read_written(directory: Path) -> BlockMap | None:
    """The blocks that macluster wrote to this folder; None if another program wrote it. Raises BadModel."""
    return read_map(directory) or read_map(directory, WHOLE_NAME)


def write_map(directory: Path, there: BlockMap) -> None:
    """Replace the map on disk, synced. Raises TransferError."""
    head = head_of(there.files)
    known = [(name, block, sha256) for name, blocks in there.hashes.items() for block, sha256 in blocks.items()]
    write_private(directory / MAP_NAME, head + records_of(there.files, head, known), TransferError)


def read_list(directory: Path, name: str) -> tuple[bytes, dict[str, FileFacts], bytes]:
    """First line of a map or of `.compared`, its files, and the rest. Raises OSError, BadModel if it is newer, and as
    `decode` does.
    """
    fd = os.open(directory / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        line, rest = file.readline(MAX_HEAD_BYTES), file.read(MAX_RECORDS_BYTES)
    check_format(f"{name} in {name_of(directory)}", format_of(line), Home.models.format, BadModel)
    return line, msgspec.json.decode(line, type=_Head).files, rest


def head_of(files: Mapping[str, FileFacts]) -> bytes:
    """First line of the map of `files`, or of `.compared`."""
    return msgspec.json.encode(_Head(files=dict(files))) + b"\n"


def records_of(files: Mapping[str, FileFacts], head: bytes, blocks: Iterable[tuple[str, int, bytes]]) -> bytes:
    """Map records of `blocks`, each (file, number, SHA-256)."""
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
    digest = seed.copy()  # seeded with the map's first line, so records of another map don't count
    digest.update(record)
    return digest.digest()[:8]
