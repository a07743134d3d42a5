"""Frees blocks of a model: removes them from the map first, then punches holes into the file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from core.errors import Busy, TransferError
from core.mac.sparse_files import PAGE_BYTES, punch_hole
from core.models.files.block_map import BLOCK_BYTES, WHOLE_NAME, BlockMap, blocks_by_file, read_map, write_map
from core.models.files.compared_hashes import write_compared
from core.models.files.parts import Part, ranges
from core.trust.private_files import folder_to_disk, to_disk

_WEIGHTS: Final = ".safetensors"


def kept_of(there: BlockMap, needed: Iterable[Part]) -> BlockMap:
    """Blocks to keep: those with a byte of `needed`, and all of the files without weights."""
    blocks = blocks_by_file(needed)

    def stays(name: str, block: int) -> bool:
        return not name.endswith(_WEIGHTS) or block in blocks.get(name, ())

    hashes = {name: {b: h for b, h in known.items() if stays(name, b)} for name, known in there.hashes.items()}
    return BlockMap(there.files, hashes)


def taken_bytes(directory: Path, names: Iterable[str]) -> int:
    """Bytes the files occupy on disk; holes occupy none."""
    return sum(512 * (directory / name).lstat().st_blocks for name in names)


def let_go(directory: Path, there: BlockMap, kept: BlockMap, is_still_so: Callable[[], bool]) -> None:
    """Free all blocks that are not `kept`, also after a crash; the map never lists a hole as a block.

    Calls `is_still_so` after the map is written: whether the blocks are still unneeded. Raises TransferError, Busy,
    OSError.
    """
    _check_holes(directory)
    if read_map(directory) is None:  # a complete model whose file hashes were checked
        in_order = {name: b"".join(h for _, h in sorted(known.items())) for name, known in there.hashes.items()}
        write_compared(directory, there.files, in_order)
    write_map(directory, kept)
    if not is_still_so():
        write_map(directory, there)
        raise Busy("That model is being loaded.", "Try again when it is loaded, or was unloaded.")
    (directory / WHOLE_NAME).unlink(missing_ok=True)
    folder_to_disk(directory)
    for name, known in kept.hashes.items():
        _punch(directory / name, [block for block in kept.files[name].blocks if block not in known])


def _punch(file: Path, blocks: Iterable[int]) -> None:
    fd = os.open(file, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for start, stop in ranges(blocks):
            punch_hole(fd, start * BLOCK_BYTES, min(stop * BLOCK_BYTES, os.fstat(fd).st_size))
        to_disk(fd)
    finally:
        os.close(fd)


def _check_holes(directory: Path) -> None:
    """Raise TransferError if the disk doesn't support holes."""
    with tempfile.TemporaryFile(dir=directory.parent) as probe:
        probe.write(bytes(PAGE_BYTES))
        probe.flush()
        try:
            punch_hole(probe.fileno(), 0, PAGE_BYTES)
        except OSError as error:
            what = f"The disk of {directory.parent} cannot free a part of a file: {error.strerror}."
            raise TransferError(what, "Delete unneeded models there.") from error
