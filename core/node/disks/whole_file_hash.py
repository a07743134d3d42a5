"""Hashes a whole file whose blocks are spread over several Macs, from first to last byte, storing no blocks."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from core.errors import TransferError
from core.models.files.block_map import BLOCK_BYTES, BlockMap
from core.node.disks.byte_links import MAX_RUN, ReceivedBlock, RunRequest

AHEAD: Final = 4  # runs in flight while one is hashed

# reads blocks from the Mac that has them
Read = Callable[[str, RunRequest], Coroutine[Any, Any, list[ReceivedBlock]]]


class FileHashes(NamedTuple):
    """SHA-256 of a whole file and of its blocks."""

    sha256: str  # hex
    blocks: bytes  # 32 per block


async def file_hashes(name: str, holders: Sequence[str], read: Read, count: Callable[[int], None]) -> FileHashes:
    """Hash a file. `holders`: the Mac with each block; `count` gets the bytes hashed.

    Raises TransferError, and as `read`.
    """
    whole, blocks = hashlib.sha256(), list[bytes]()
    coming = deque[asyncio.Task[list[ReceivedBlock]]]()
    runs = runs_of(name, holders)
    try:
        while True:
            while len(coming) < AHEAD and (run := next(runs, None)):
                coming.append(asyncio.create_task(read(*run)))
            if not coming:
                return FileHashes(whole.hexdigest(), b"".join(blocks))
            sent = await coming[0]
            coming.popleft()
            blocks += await asyncio.to_thread(_hashed, whole, name, sent)
            count(sum(len(each.data) for each in sent))
    finally:
        for task in coming:
            task.cancel()
        await asyncio.gather(*coming, return_exceptions=True)


def runs_of(name: str, holders: Sequence[str]) -> Iterator[tuple[str, RunRequest]]:
    """Group all blocks of a file, in order, into runs from the same Mac."""
    for holder, numbers in groupby(range(len(holders)), holders.__getitem__):
        blocks = list(numbers)
        for at in range(0, len(blocks), MAX_RUN):
            yield holder, RunRequest(name, blocks[at], len(blocks[at : at + MAX_RUN]))


def read_here(directory: Path, there: BlockMap, run: RunRequest) -> list[ReceivedBlock]:
    """Blocks of a run on this disk. Raises TransferError."""
    facts, known = there.files[run.name], there.hashes[run.name]
    try:
        with (directory / run.name).open("rb") as file:
            return [
                ReceivedBlock(n, known[n], memoryview(os.pread(file.fileno(), facts.length(n), n * BLOCK_BYTES)))
                for n in range(run.first, run.first + run.count)
            ]
    except OSError as error:
        raise TransferError(f"{run.name} cannot be read: {error.strerror}.") from error


def _hashed(whole: hashlib._Hash, name: str, sent: Sequence[ReceivedBlock]) -> list[bytes]:
    hashes = [hashlib.sha256(each.data).digest() for each in sent]
    for each, sha256 in zip(sent, hashes, strict=True):
        if sha256 != each.sha256:
            what = f"Block {each.number} of {name} has changed since its download, on the Mac that has it."
            raise TransferError(what, "Load again; that Mac then reports the problem.")
        whole.update(each.data)
    return hashes
