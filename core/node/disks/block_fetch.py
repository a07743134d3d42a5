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
from core.node.disks.block_schedule import BlockSchedule, FileBlock
from core.settings import GB

LANES: Final = 2  # blocks under way from one Mac


class BlockFetch:
    """`sources`: device ids of Macs that have all or some of it; what a block has to hold says the first of them that
    has it, and who says otherwise has it not. `report` gets how many bytes of what is wanted are there, and of how
    many.
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
        self._living, self._writer, self._report = list(sources), writer, report
        self._pages: dict[tuple[str, str, int], bytes] = {}
        self._asking = {source: asyncio.Lock() for source in sources}
        self._failed: MaclusterError | None = None
        self._there = self._total = 0

    async def run(self, parts: Iterable[Part]) -> None:
        """Fetch what of `parts` is not there. Raises TransferError, LinkLost, LinkTimeout, OSError."""
        wanted = {FileBlock(part.file, number) for part in parts for number in blocks_of(part)}
        known = self._writer.map.hashes
        missing = [block for block in wanted if block.number not in known.get(block.file, {})]
        self._total = sum(map(self._length, wanted))
        self._there = self._total - sum(map(self._length, missing))
        self._report(self._there, self._total)
        schedule, asked = BlockSchedule(missing), list[str]()
        while not schedule.is_done and asked != self._living:
            asked = list(self._living)  # who is gone said what a block has to hold: now the others do
            schedule.offer(dict.fromkeys(asked, missing))
            while schedule.sources:
                await together(self._lane(schedule, source) for source in schedule.sources for _ in range(LANES))
        if not schedule.is_done:
            lacking = (self._total - self._there) / GB
            raise self._failed or TransferError(
                f"{lacking:.3f} GB of it are on no linked Mac.", "Bring back the Mac that has them, then try again."
            )

    async def _lane(self, schedule: BlockSchedule, source: str) -> None:
        """One block after the other from one Mac, until it has no more or is gone."""
        while block := schedule.next(source):
            length = self._length(block)
            try:
                if not (sha256 := await self._sha256(schedule, source, block)):
                    continue
                data = await self._requests.block(source, self._fingerprint, *block, length)
            except MaclusterError as error:
                self._gone(schedule, source, error)
                return
            if await asyncio.to_thread(self._put, block, data, sha256):
                schedule.arrived(block)
                self._there += length
                self._report(self._there, self._total)
            elif schedule.bad(source, block):
                what = f"{block.file} arrived damaged, again and again."
                self._gone(schedule, source, TransferError(what, "Copy again: what is whole is kept."))

    def _gone(self, schedule: BlockSchedule, source: str, error: MaclusterError) -> None:
        self._failed = error
        schedule.gone(source)
        if source in self._living:
            self._living.remove(source)

    def _put(self, block: FileBlock, data: bytes, sha256: bytes) -> bool:
        is_good = hashlib.sha256(data).digest() == sha256
        if is_good:
            self._writer.put(*block, data)
        return is_good

    async def _sha256(self, schedule: BlockSchedule, source: str, block: FileBlock) -> bytes:
        """What `block` has to hold; nothing where `source` has it not, which the schedule is told. Raises what asking
        `source` does.
        """
        if (own := await self._said(schedule, source, block)) == NOT_HERE:
            schedule.lacks(source, [block])
            return b""
        for each in list(self._living):
            try:
                said = own if each == source else await self._said(schedule, each, block)
            except MaclusterError as error:
                self._gone(schedule, each, error)
                continue
            if said != NOT_HERE:
                if said != own:
                    schedule.lacks(source, [block])
                return own if said == own else b""
        return b""

    async def _said(self, schedule: BlockSchedule, source: str, block: FileBlock) -> bytes:
        """What `source` says that `block` holds, asked for many at once; NOT_HERE where it has it not."""
        first = block.number - block.number % MAX_HASHES
        async with self._asking[source]:
            if (page := self._pages.get((source, block.file, first))) is None:
                page = await self._requests.hashes(source, self._fingerprint, block.file, first)
                self._pages[source, block.file, first] = page
                numbers = self._files[block.file].blocks[first : first + MAX_HASHES]
                schedule.lacks(source, [FileBlock(block.file, n) for n in numbers if _at(page, n - first) == NOT_HERE])
        return _at(page, block.number - first)

    def _length(self, block: FileBlock) -> int:
        return self._files[block.file].length(block.number)


def _at(page: bytes, index: int) -> bytes:
    return page[32 * index :][:32].ljust(32, b"\0")
