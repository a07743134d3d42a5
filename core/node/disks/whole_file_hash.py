"""Hashes a whole file whose blocks are spread over several Macs, from first to last byte, storing no blocks."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from core.errors import TransferError
from core.models.files.block_map import BLOCK_BYTES, BlockMap
from core.node.disks.block_requests import BlockLink, BlockRequests
from core.node.disks.byte_links import MAX_RUN, ReceivedBlock, RunRequest, blocks_in

AHEAD: Final = 4  # runs in flight while one is hashed
HERE: Final = ""

Run = tuple[str, RunRequest]


class FileHashes(NamedTuple):
    """SHA-256 of a whole file and of its blocks."""

    sha256: str  # hex
    blocks: bytes  # 32 per block


class WholeFileReader:
    """Reads files of the model in `directory` with the map `there`. `close` it at the end."""

    def __init__(self, requests: BlockRequests, fingerprint: str, directory: Path, there: BlockMap) -> None:
        self._requests, self._fingerprint = requests, fingerprint
        self._directory, self._there = directory, there
        self._links: dict[str, asyncio.Future[BlockLink]] = {}

    async def hash(self, name: str, holders: Sequence[str], count: Callable[[int], None]) -> FileHashes:
        """Hash a file. `holders`: the Mac with each block (HERE for this one); `count` gets the bytes hashed.

        Raises LinkError, TransferError.
        """
        whole, blocks = hashlib.sha256(), list[bytes]()
        coming = deque[asyncio.Task[list[ReceivedBlock]]]()
        runs = runs_of(name, holders)
        try:
            while True:
                while len(coming) < AHEAD and (run := next(runs, None)):
                    coming.append(asyncio.create_task(self._read(*run)))
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

    def close(self) -> None:
        for coming in self._links.values():
            if coming.done() and not coming.cancelled() and not coming.exception():
                coming.result().close()
            coming.cancel()

    async def _read(self, holder: str, run: RunRequest) -> list[ReceivedBlock]:
        if holder == HERE:
            return await asyncio.to_thread(_read_here, self._directory, self._there, run)
        sent = list(blocks_in(run, self._there.files[run.name], await (await self._link(holder)).ask(run)))
        if len(sent) < run.count:
            raise TransferError(f"A part of {run.name} is no longer on the Mac that had it.", "Load the model again.")
        return sent

    async def _link(self, holder: str) -> BlockLink:
        if holder not in self._links:
            self._links[holder] = asyncio.ensure_future(self._requests.link(holder, self._fingerprint))
        return await self._links[holder]


def runs_of(name: str, holders: Sequence[str]) -> Iterator[Run]:
    """Group all blocks of a file, in order, into runs from the same Mac."""
    for holder, numbers in groupby(range(len(holders)), holders.__getitem__):
        blocks = list(numbers)
        for at in range(0, len(blocks), MAX_RUN):
            yield holder, RunRequest(name, blocks[at], len(blocks[at : at + MAX_RUN]))


def _read_here(directory: Path, there: BlockMap, run: RunRequest) -> list[ReceivedBlock]:
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
