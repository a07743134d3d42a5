"""Brings blocks of one model from the Macs that have them to this Mac's disk, several runs at a time from each."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import monotonic
from typing import Final

from core.errors import MaclusterError, TransferError
from core.models.files.block_map import BLOCK_BYTES, FileFacts, blocks_of
from core.models.files.block_writer import BlockWriter
from core.models.files.byte_rate_limit import ByteRateLimit
from core.models.files.parts import Part
from core.node.base.tasks import together
from core.node.disks.block_link import BlockLink
from core.node.disks.block_requests import BlockRequests
from core.node.disks.block_runs import MAX_RUN, BlockSent, RunRequest, blocks_in
from core.node.disks.block_schedule import BlockSchedule, FileBlock
from core.node.disks.file_serving import MAX_DOORS
from core.node.disks.messages import MAX_HASHES, NOT_HERE
from core.settings import GB

# to one Mac: each keeps a core busy at both ends, and more are no quicker; a door stays for who reads whole files
LINKS: Final = max(1, min(MAX_DOORS - 1, (os.cpu_count() or 1) // 2))
LANES: Final = max(3, 6 // LINKS)  # runs under way over one link
WRITERS: Final = 3 + LINKS  # threads: one may wait for the disk, one hash whole files
RUN_S: Final = 0.25
LOOK_S: Final = 0.5


class BlockFetch:
    """`sources`: device ids of Macs that have all or some of it, and whether all. What a block has to hold says the
    first of them that has it. `report` gets how many bytes of what is wanted are there, and of how many; `warn` the Mac
    that sent something else, and what; `check_room` how many bytes are to come, and raises TransferError. `pace` is
    that of all sources together.
    """

    def __init__(
        self,
        requests: BlockRequests,
        fingerprint: str,
        files: Mapping[str, FileFacts],
        sources: Mapping[str, bool],
        writer: BlockWriter,
        report: Callable[[int, int], None],
        warn: Callable[[str, str], None],
        check_room: Callable[[int], None],
        pace: ByteRateLimit,
    ) -> None:
        self._requests, self._fingerprint, self._files = requests, fingerprint, files
        self._sources, self._writer, self._report, self._warn = sources, writer, report, warn
        self._check_room, self._pace = check_room, pace
        self._pages: dict[tuple[str, str, int], bytes] = {}
        self._asking = {source: asyncio.Lock() for source in sources}
        self._moved = asyncio.Condition()
        self._writers = ThreadPoolExecutor(WRITERS, "blocks that are written")
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
        schedule = await asyncio.to_thread(BlockSchedule, missing)
        offers = dict(
            zip(self._sources, await together(self._has(each, missing) for each in self._sources), strict=True)
        )
        schedule.offer({source: blocks for source, blocks in offers.items() if blocks})
        try:
            await together(self._fetch_from(schedule, source) for source in schedule.sources)
        finally:
            await asyncio.to_thread(self._writers.shutdown)
        if not schedule.is_done:
            lacking = (self._total - self._there) / GB
            raise self._failed or TransferError(
                f"{lacking:.3f} GB of it are on no linked Mac.", "Bring back the Mac that has them, then try again."
            )

    async def _has(self, source: str, missing: Sequence[FileBlock]) -> Sequence[FileBlock]:
        """What of `missing` that Mac has: one that has only a part says so block by block."""
        if self._sources[source]:
            return missing
        try:
            return [block for block in missing if await self._said(source, block) != NOT_HERE]
        except MaclusterError as error:
            self._failed = error
            return ()

    async def _fetch_from(self, schedule: BlockSchedule, source: str) -> None:
        """Until that Mac has nothing more that is wanted, or is gone."""
        await together(self._fetch_over_link(schedule, source) for _ in range(LINKS))

    async def _fetch_over_link(self, schedule: BlockSchedule, source: str) -> None:
        try:
            link = await self._requests.link(source, self._fingerprint)
        except MaclusterError as error:
            await self._gone(schedule, source, error)
            return
        try:
            await together(self._lane(schedule, source, link) for _ in range(LANES))
        finally:
            link.close()

    async def _lane(self, schedule: BlockSchedule, source: str, link: BlockLink) -> None:
        """One run after the other, each about as long as comes in `RUN_S`."""
        most = 1
        while source in schedule.sources:
            began = monotonic()
            if not (run := schedule.take(source, most, began)):
                await self._wait()
                continue
            try:
                is_whole_run = await self._bring(schedule, source, link, run)
                spent_s = monotonic() - began
                await self._rest(sum(map(self._length, run)))
            except MaclusterError as error:
                await self._gone(schedule, source, error)
                return
            if is_whole_run and len(run) == most:
                quick = round(most * RUN_S / max(spent_s, 1e-6))
                most = max(1, min(quick, 2 * most, MAX_RUN, self._pace.most(BLOCK_BYTES, RUN_S)))
            async with self._moved:
                self._moved.notify_all()

    async def _bring(self, schedule: BlockSchedule, source: str, link: BlockLink, run: tuple[FileBlock, ...]) -> bool:
        """Whether all of `run` came and is what it should be. Raises LinkError, TransferError, OSError."""
        name, first = run[0]
        asked = RunRequest(name, first, len(run))
        answer = await link.ask(asked)
        sent = {each.number: each for each in blocks_in(asked, self._files[name], answer)}
        for block in run:
            if block.number not in sent:
                schedule.lacks(source, block)
        expected = {each.number: await self._sha256(schedule, source, name, each) for each in sent.values()}
        put = partial(self._put, name, sent.values(), expected)
        good = await asyncio.get_running_loop().run_in_executor(self._writers, put)
        link.give_back(answer)
        for block in run:
            if block.number in good and schedule.arrived(block):
                self._there += self._length(block)
            elif block.number in sent and block.number not in good:
                self._warn(source, f"block {block.number} of {name}")
                if schedule.bad(source, block):
                    what = f"{name} arrived damaged, again and again."
                    raise TransferError(what, "Copy again: what is whole is kept.")
        self._report(self._there, self._total)
        return len(good) == len(run)

    def _put(self, name: str, sent: Iterable[BlockSent], expected: Mapping[int, bytes]) -> set[int]:
        """The numbers of those that are what they should be; they are written. Raises OSError, and TransferError where
        others have filled the disk meanwhile.
        """
        self._check_room(self._total - self._there)
        return {each.number for each in sent if self._writer.put(name, each.number, each.data, expected[each.number])}

    async def _sha256(self, schedule: BlockSchedule, source: str, name: str, sent: BlockSent) -> bytes:
        """What a block has to hold."""
        for each in schedule.holders(FileBlock(name, sent.number)):
            if each == source:
                break
            try:
                if (said := await self._said(each, FileBlock(name, sent.number))) != NOT_HERE:
                    return said
            except MaclusterError as error:
                await self._gone(schedule, each, error)
        return sent.sha256

    async def _said(self, source: str, block: FileBlock) -> bytes:
        """What `source` says that `block` holds, asked for many at once; NOT_HERE where it has it not."""
        first = block.number - block.number % MAX_HASHES
        if (page := self._pages.get((source, block.file, first))) is None:
            async with self._asking[source]:
                if (page := self._pages.get((source, block.file, first))) is None:
                    page = await self._requests.hashes(source, self._fingerprint, block.file, first)
                    self._pages[source, block.file, first] = page
        return page[32 * (block.number - first) :][:32].ljust(32, b"\0")

    async def _rest(self, nbytes: int) -> None:
        """So many came: nothing more is asked for as long as the pace wants it, which may be changed meanwhile."""
        until = self._pace.came(nbytes, monotonic())
        left_s = 1.0
        while left_s > 0:
            left_s = self._pace.left_s(until, monotonic())
            await asyncio.sleep(min(left_s, LOOK_S))  # also where nothing is left: the other sources get their turn

    async def _wait(self) -> None:
        """Until something arrives or somebody is gone, or for a while, after which what stalls is asked of others."""
        try:
            async with asyncio.timeout(LOOK_S), self._moved:
                await self._moved.wait()
        except TimeoutError:
            return

    async def _gone(self, schedule: BlockSchedule, source: str, error: MaclusterError) -> None:
        self._failed = error
        schedule.gone(source)
        async with self._moved:
            self._moved.notify_all()

    def _length(self, block: FileBlock) -> int:
        return self._files[block.file].length(block.number)
