"""Fetches missing blocks of a model from other Macs, several runs at a time from each."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

from core.errors import MaclusterError, TransferError
from core.models.files.block_map import BLOCK_BYTES, HASH_BYTES, FileFacts, blocks_by_file, hash_at
from core.models.files.block_writer import KEPT_FREE_BYTES, BlockWriter, check_free
from core.models.files.parts import Part
from core.node.base.tasks import together
from core.node.disks import byte_links
from core.node.disks.block_requests import BlockLink, BlockRequests
from core.node.disks.block_schedule import BlockSchedule, FileBlock
from core.node.disks.block_serving import MAX_PORTS
from core.node.disks.messages import HeldModel
from core.node.disks.transfer_progress import Report, TransferProgress
from core.settings import GB

# to one Mac: each keeps a core busy at both ends; one port stays free for comparing whole files
LINKS: Final = max(1, min(MAX_PORTS - 1, (os.cpu_count() or 1) // 2))
RUNS_IN_FLIGHT: Final = max(3, 6 // LINKS)  # over one link
WRITERS: Final = 3 + LINKS  # threads: one may wait for the disk, one hash whole files
RUN_S: Final = 0.25
LOOK_S: Final = 0.5

# gets the device id of a Mac that sent damaged data, and its description
Warn = Callable[[str, str], None]


class WantedCopy(NamedTuple):
    """Parts of a model to copy to a folder of this Mac."""

    model: HeldModel
    files: Mapping[str, FileFacts]
    folder: Path
    wanted: Sequence[Part]
    sources: Mapping[str, BlockLink]  # links to Macs with the same files, by device id
    progress: TransferProgress
    warn: Warn


class BlockFetch:
    """Fetches the missing blocks of a model. The first source with a block decides its expected hash."""

    def __init__(self, requests: BlockRequests, copy: WantedCopy, writer: BlockWriter, report: Report) -> None:
        self._requests, self._writer, self._report, self._files = requests, writer, report, copy.files
        self._fingerprint, self._sources, self._folder = copy.model.fingerprint, copy.sources, copy.folder
        self._wanted, self._warn, self._limit = copy.wanted, copy.warn, copy.progress.limit
        self._schedule = BlockSchedule((), {})
        self._pages: dict[tuple[str, str, int], bytes] = {}  # hashes by source, file and first block
        self._asking = {source: asyncio.Lock() for source in self._sources}
        self._moved = asyncio.Condition()
        self._writers = ThreadPoolExecutor(WRITERS, "blocks that are written")
        self._failed: MaclusterError | None = None
        self._there = self._total = 0

    async def run(self) -> None:
        """Fetch the missing blocks. Raises TransferError, LinkLost, LinkTimeout, OSError."""
        there = self._writer.map
        lacking = there.missing(self._wanted)
        missing = [FileBlock(name, number) for name, numbers in lacking.items() for number in numbers]
        self._total = there.nbytes_of(blocks_by_file(self._wanted))
        self._there = self._total - there.nbytes_of(lacking)
        self._report("running", self._there, self._total)
        offers = zip(self._sources, await together(self._offered(each, missing) for each in self._sources), strict=True)
        self._schedule = await asyncio.to_thread(BlockSchedule, missing, {mac: has for mac, has in offers if has})
        try:
            await together(self._fetch(source, number) for source in self._schedule.sources for number in range(LINKS))
        finally:
            await asyncio.to_thread(self._writers.shutdown)
        if not self._schedule.is_done:
            gb = (self._total - self._there) / GB
            raise self._failed or TransferError(
                f"{gb:.3f} GB of it are on no linked Mac.", "Bring back the Mac that has them, then try again."
            )

    async def _offered(self, source: str, missing: Sequence[FileBlock]) -> Sequence[FileBlock]:
        """Blocks of `missing` that a Mac has; a Mac with only a part lists them."""
        try:
            if (await self._sources[source].files()).is_whole:
                return missing
            return [block for block in missing if await self._hash_at(source, block) != byte_links.NOT_HERE]
        except MaclusterError as error:
            self._failed = error
            return ()

    async def _fetch(self, source: str, number: int) -> None:
        """Fetch over one link, the open one or another, until that Mac has no more wanted blocks, or is gone."""
        with ExitStack() as stack:
            link = self._sources[source]
            if number:
                try:
                    link = await self._requests.link(source, self._fingerprint)
                except MaclusterError as error:
                    await self._gone(source, error)
                    return
                stack.callback(link.close)
            await together(self._fetch_runs(source, link) for _ in range(RUNS_IN_FLIGHT))

    async def _fetch_runs(self, source: str, link: BlockLink) -> None:
        """Fetch one run after another, each sized to arrive in about `RUN_S`."""
        most = 1
        while source in self._schedule.sources:
            began = monotonic()
            if not (run := self._schedule.take(source, most, began)):
                await self._wait()
                continue
            try:
                is_complete = await self._fetch_run(source, link, run)
                spent_s = monotonic() - began
                await self._rest(sum(map(self._length, run)))
            except MaclusterError as error:
                await self._gone(source, error)
                return
            if is_complete and len(run) == most:
                in_time = round(most * RUN_S / max(spent_s, 1e-6))
                most = max(1, min(in_time, 2 * most, byte_links.MAX_RUN, self._limit.most(BLOCK_BYTES, RUN_S)))
            async with self._moved:
                self._moved.notify_all()

    async def _fetch_run(self, source: str, link: BlockLink, run: tuple[FileBlock, ...]) -> bool:
        """Whether all blocks of `run` arrived intact. Raises LinkError, TransferError, OSError."""
        name, first = run[0]
        request = byte_links.RunRequest(name, first, len(run))
        answer = await link.ask(request)
        received = {each.number: each for each in byte_links.blocks_in(request, self._files[name], answer)}
        expected = {each.number: await self._expected(source, name, each) for each in received.values()}
        write = partial(self._write, name, received.values(), expected)
        good = await asyncio.get_running_loop().run_in_executor(self._writers, write)
        link.give_back(answer)
        for block in run:
            if block.number not in received:
                self._schedule.lacks(source, block)
            elif block.number in good:
                self._there += self._length(block) if self._schedule.arrived(block) else 0
            else:
                self._warn(source, f"block {block.number} of {name}")
                if self._schedule.bad(source, block):
                    what = f"{name} arrived damaged, again and again."
                    raise TransferError(what, "Copy it again. Intact blocks are kept.")
        self._report("running", self._there, self._total)
        return len(good) == len(run)

    def _write(
        self, name: str, received: Iterable[byte_links.ReceivedBlock], expected: Mapping[int, bytes]
    ) -> set[int]:
        """Write the intact blocks; returns their numbers. Raises OSError, and TransferError on a full disk."""
        check_free(self._folder, self._total - self._there, KEPT_FREE_BYTES // 2)
        put = partial(self._writer.put, name)
        return {each.number for each in received if put(each.number, each.data, expected[each.number])}

    async def _expected(self, source: str, name: str, received: byte_links.ReceivedBlock) -> bytes:
        """Expected hash of a block, from the first Mac that has it."""
        for each in self._schedule.holders(block := FileBlock(name, received.number)):
            if each == source:
                break
            try:
                if (sha256 := await self._hash_at(each, block)) != byte_links.NOT_HERE:
                    return sha256
            except MaclusterError as error:
                await self._gone(each, error)
        return received.sha256

    async def _hash_at(self, source: str, block: FileBlock) -> bytes:
        """Hash of a block on another Mac, NOT_HERE if it lacks the block. Fetched for many blocks at once."""
        first = block.number - block.number % byte_links.MAX_HASHES
        key = source, block.file, first
        async with self._asking[source]:
            if key not in self._pages:
                self._pages[key] = await self._sources[source].hashes(block.file, first)
        return hash_at(self._pages[key], block.number - first).ljust(HASH_BYTES, b"\0")

    async def _rest(self, nbytes: int) -> None:
        """Wait as the rate limit requires after `nbytes` bytes; the limit may change meanwhile."""
        until = self._limit.came(nbytes, monotonic())
        left_s = 1.0
        while left_s > 0:
            left_s = self._limit.left_s(until, monotonic())
            await asyncio.sleep(min(left_s, LOOK_S))  # sleeps even for 0, so that other sources get a turn

    async def _wait(self) -> None:
        """Wait for data or a lost Mac, up to LOOK_S, after which stalled blocks are requested again."""
        try:
            async with asyncio.timeout(LOOK_S), self._moved:
                await self._moved.wait()
        except TimeoutError:
            return

    async def _gone(self, source: str, error: MaclusterError) -> None:
        self._failed = error
        self._schedule.gone(source)
        async with self._moved:
            self._moved.notify_all()

    def _length(self, block: FileBlock) -> int:
        return self._files[block.file].length(block.number)
