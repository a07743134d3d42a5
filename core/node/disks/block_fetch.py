"""Brings blocks of one model from the Macs that have them to this Mac's disk, several at a time from each."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from core.errors import MaclusterError, TransferError
from core.models.files.block_map import BlockWriter, FileFacts, blocks_of
from core.models.files.parts import Part
from core.node.base.messages import MAX_HASHES, NOT_HERE
from core.node.base.tasks import together
from core.node.disks.block_requests import BlockRequests
from core.node.disks.block_schedule import Block, BlockSchedule

LANES: Final = 2  # blocks under way from one Mac


class BlockFetch:
    """`sources`: device ids, the first of which says what each block has to hold. `report` gets how many bytes of what
    is wanted are there, and of how many.
    """

    def __init__(
        self,
        requests: BlockRequests,
        fingerprint: str,
        files: Mapping[str, FileFacts],
        sources: Sequence[str],
        writer: BlockWriter,
        report: Callable[[int, int], None],
    ) -> None:
        self._requests, self._fingerprint, self._files = requests, fingerprint, files
        self._sources, self._writer, self._report = sources, writer, report
        self._hashes: dict[tuple[str, int], bytes] = {}
        self._asking = asyncio.Lock()
        self._failed: MaclusterError | None = None
        self._there = self._total = 0

    async def run(self, parts: Iterable[Part]) -> None:
        """Fetch what of `parts` is not there. Raises TransferError, LinkLost, LinkTimeout, OSError."""
        wanted = {Block(part.file, number) for part in parts for number in blocks_of(part)}
        known = self._writer.map.hashes
        missing = [block for block in wanted if block.number not in known.get(block.file, {})]
        self._total = sum(map(self._length, wanted))
        self._there = self._total - sum(map(self._length, missing))
        self._report(self._there, self._total)
        schedule = BlockSchedule(missing)
        for source in self._sources:
            schedule.offer(source, missing)
        while not schedule.is_done and schedule.sources:
            await together(self._lane(schedule, source) for source in schedule.sources for _ in range(LANES))
        if not schedule.is_done:
            raise self._failed or TransferError("No linked Mac has all of it.")

    async def _lane(self, schedule: BlockSchedule, source: str) -> None:
        """One block after the other from one Mac, until it has no more or is gone."""
        while block := schedule.next(source):
            length = self._length(block)
            try:
                sha256 = await self._sha256(block)
                data = await self._requests.block(source, self._fingerprint, *block, length)
            except MaclusterError as error:
                self._failed = error
                schedule.gone(source)
                return
            if await asyncio.to_thread(self._put, block, data, sha256):
                schedule.arrived(block)
                self._there += length
                self._report(self._there, self._total)
            elif schedule.bad(source, block):
                self._failed = TransferError(
                    f"{block.file} arrived damaged, again and again.", "Copy again: what is whole is kept."
                )

    def _put(self, block: Block, data: bytes, sha256: bytes) -> bool:
        is_good = hashlib.sha256(data).digest() == sha256
        if is_good:
            self._writer.put(*block, data)
        return is_good

    async def _sha256(self, block: Block) -> bytes:
        """What the first source says of it, asked for many at once. Raises TransferError where it has none."""
        first = block.number - block.number % MAX_HASHES
        async with self._asking:
            if (said := self._hashes.get((block.file, first))) is None:
                said = await self._requests.hashes(self._sources[0], self._fingerprint, block.file, first)
                self._hashes[block.file, first] = said
        sha256 = said[32 * (block.number - first) :][:32]
        if len(sha256) < 32 or sha256 == NOT_HERE:
            raise TransferError(f"The Mac that has the model lacks a part of {block.file}.")
        return sha256

    def _length(self, block: Block) -> int:
        return self._files[block.file].length(block.number)
