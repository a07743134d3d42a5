"""Models that come to this Mac's disk from others, whole or in part, block by block, from every Mac that has them.

What a block has to hold says the first Mac that has it; the bytes may come from any that says the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from core.errors import MaclusterError, TransferError
from core.models.files.block_map import FileFacts
from core.models.files.block_writer import BlockWriter
from core.models.files.byte_rate_limit import ByteRateLimit
from core.models.files.catalog import ModelEntry, short_name
from core.models.files.hub_origin import write_origin
from core.models.files.parts import Part
from core.node.base.tasks import Tasks, together
from core.node.disks import hub_models
from core.node.disks.arrivals import (
    SPARE_BYTES,
    check_arrived,
    check_free,
    check_names,
    check_room,
    files_here,
    is_here,
    wanted_parts,
    where_begun,
)
from core.node.disks.block_fetch import BlockFetch
from core.node.disks.block_requests import BlockRequests
from core.node.disks.byte_links import ByteLinks
from core.node.disks.file_serving import FileSender, FileServing
from core.node.disks.local_models import LocalModels
from core.node.disks.messages import (
    BytesAsk,
    BytesReady,
    FilesAsk,
    FilesSent,
    FileWord,
    HashesAsk,
    HashesSent,
    HeldModel,
)
from core.node.disks.places import PARTIAL, free_place
from core.node.disks.ways import RateMeter, Report, Way, in_order
from core.settings import GB

Bring = Callable[[Report], Awaitable[None]]
Warn = Callable[[str, str], None]


class CopyReports(NamedTuple):
    """Who is told while a model comes. `report` gets "running" or "checking", bytes that are there, and of how many;
    `warn` the device id of a Mac that sent something damaged, and what; `comes_from` that of the Mac that is asked
    first, or "" for the hub, whenever that changes.
    """

    report: Report
    warn: Warn
    comes_from: Callable[[str], None]


class ModelCopies:
    """Gives files of models to linked Macs, and fetches models from them into `folder`, a directory each."""

    def __init__(self, models: LocalModels, sender: FileSender, links: ByteLinks, folder: Path, tasks: Tasks) -> None:
        self._models, self._folder = models, folder
        self.serving = FileServing(models, sender, links, tasks)
        self.requests = BlockRequests(sender, links, tasks)
        self._rates: dict[Way, float] = {}

    async def handle_message(self, device_id: str, message: FileWord) -> None:
        """Another Mac asks for files, or sends what this one asked for."""
        match message:
            case FilesAsk():
                await self.serving.send_files(device_id, message.fingerprint)
            case HashesAsk():
                await self.serving.send_hashes(device_id, message)
            case BytesAsk():
                await self.serving.open_door(device_id, message)
            case FilesSent() | HashesSent() | BytesReady():
                self.requests.settle(device_id, message)

    def gone(self, device_id: str) -> None:
        """That Mac is linked no more."""
        self.requests.gone(device_id)
        self.serving.gone(device_id)

    async def fetch(
        self,
        sources: Sequence[str],
        model: HeldModel,
        reports: CopyReports,
        parts: Sequence[Part] = (),
        pace: ByteRateLimit | None = None,
    ) -> None:
        """Copy a model from linked Macs that have all or some of it, or `parts` of it with all of its settings; nobody
        is asked where all of that is here. `pace` is that of all that comes.

        Raises TransferError, ModelMismatch, LinkLost, LinkTimeout, BadModel; what is there then is kept, and gone on
        with. Where the model is of the hub, what no Mac has comes from there, or all where that was faster.
        """
        entries = await self._models.list()
        if await asyncio.to_thread(is_here, entries, model, parts):
            return
        files, alike = await self._files_and_sources(sources, model, entries)
        wanted = wanted_parts(files, parts)
        begun = await asyncio.to_thread(where_begun, self._folder, entries, model, files)
        await asyncio.to_thread(check_room, begun, files, wanted)
        await self._bring(alike, model, files, begun, wanted, reports, pace or ByteRateLimit())
        await asyncio.to_thread(check_arrived, begun, model)
        if model.hub:
            await asyncio.to_thread(write_origin, begun, model.hub)
        if begun.parent.name == PARTIAL:
            taken = {short_name(entry.name) for entry in entries}
            await asyncio.to_thread(begun.rename, free_place(self._folder, model.name, model.fingerprint, taken))

    async def begin(self, repo: str, revision: str, report: Report) -> str:
        """Have what tells of a model of the hub on this disk; its fingerprint. Raises as `fetch`."""
        return await hub_models.begin(self._models, self._folder, repo, revision, _stages(report))

    async def _files_and_sources(
        self, sources: Sequence[str], model: HeldModel, entries: Sequence[ModelEntry]
    ) -> tuple[Mapping[str, FileFacts], Mapping[str, bool]]:
        """The files of the model, by the first source that can tell them, and all sources that say the same: whether
        each has all of it. By what is here where none tells, and the hub has it.
        """
        replies = dict(zip(sources, await together(self._files(source, model) for source in sources), strict=True))
        said = {source: reply for source, reply in replies.items() if isinstance(reply, FilesSent)}
        if said:
            files = next(iter(said.values())).files
            return files, {source: reply.is_whole for source, reply in said.items() if reply.files == files}
        if model.hub and (here := await asyncio.to_thread(files_here, entries, model)):
            return here, {}
        for error in replies.values():
            if isinstance(error, MaclusterError):
                raise error
        raise TransferError(f"No linked Mac has {model.name}.", "Bring back the Mac that has it, then try again.")

    async def _files(self, source: str, model: HeldModel) -> FilesSent | MaclusterError:
        """Which files that Mac says make up the model, or why it helps nobody."""
        try:
            reply = await self.requests.files(source, model.fingerprint)
            if reply.problem:
                raise TransferError(f"The other Mac cannot send it: {reply.problem.what}", reply.problem.fix)
            check_names(reply.files)
        except MaclusterError as error:
            return error
        return reply

    async def _bring(
        self,
        sources: Mapping[str, bool],
        model: HeldModel,
        files: Mapping[str, FileFacts],
        begun: Path,
        wanted: Sequence[Part],
        reports: CopyReports,
        pace: ByteRateLimit,
    ) -> None:
        """One way after the other, until all is there."""
        ways: dict[Way, Bring] = {}
        if sources:
            ways["macs"] = partial(self._from_macs, sources, model, files, begun, wanted, reports.warn, pace)
        if hub := model.hub:
            ways["hub"] = lambda report: hub_models.bring(
                model.name, begun, dict(files), hub, wanted, _stages(report), pace
            )
        order = in_order(ways, self._rates)
        for way in order:
            meter = RateMeter(reports.report)
            reports.comes_from("" if way == "hub" else next(iter(sources)))
            try:
                await ways[way](meter.count)
                return
            except MaclusterError:
                if way == order[-1]:
                    raise
            finally:
                if rate := meter.rate:
                    self._rates[way] = rate

    async def _from_macs(
        self,
        sources: Mapping[str, bool],
        model: HeldModel,
        files: Mapping[str, FileFacts],
        begun: Path,
        wanted: Sequence[Part],
        warn: Warn,
        pace: ByteRateLimit,
        report: Report,
    ) -> None:
        writer = await asyncio.to_thread(BlockWriter, begun, files)
        try:
            fetch = BlockFetch(
                self.requests,
                model.fingerprint,
                files,
                sources,
                writer,
                lambda *now: report("running", *now),
                warn,
                lambda missing: check_free(begun, missing, SPARE_BYTES // 2),
                pace,
            )
            await fetch.run(wanted)
        except OSError as error:
            missing = sum(part.nbytes for part in writer.map.lacking(wanted)) / GB
            what = f"{model.name} cannot be written: {error.strerror}; {missing:.1f} GB are missing."
            raise TransferError(what, "Make room on this disk, then copy again: what is there is kept.") from error
        finally:
            await asyncio.to_thread(writer.close)
        if not writer.map.missing_bytes:
            report("checking", *(2 * [sum(facts.size for facts in files.values())]))
        await asyncio.to_thread(writer.finish)


def _stages(report: Report) -> Callable[[bool, int, int], None]:
    return lambda is_checking, done, total: report("checking" if is_checking else "running", done, total)
