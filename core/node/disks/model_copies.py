"""Models that come to this Mac's disk from others, whole or in part, block by block, from every Mac that has them.

What a block has to hold says the first Mac that has it; the bytes may come from any that says the same.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final, Literal, NamedTuple

from core.errors import BadModel, MaclusterError, ModelError, ModelMismatch, TransferError
from core.models.files.block_map import BlockMap, BlockWriter, FileFacts, read_map, whole_parts
from core.models.files.catalog import ModelEntry, fingerprint, short_name
from core.models.files.folder import MAX_JSON_BYTES
from core.models.files.hub_origin import write_origin
from core.models.files.pace import BytePace
from core.models.files.parts import Part
from core.models.files.safetensors import DECIDING_FILES
from core.node.base.messages import (
    BytesAsk,
    BytesReady,
    FilesAsk,
    FilesSent,
    FileWord,
    HashesAsk,
    HashesSent,
    HeldModel,
)
from core.node.base.tasks import together
from core.node.disks import hub_models
from core.node.disks.block_fetch import BlockFetch
from core.node.disks.block_requests import BlockRequests
from core.node.disks.byte_links import ByteLinks
from core.node.disks.file_serving import FileSender, FileServing
from core.node.disks.local_models import LocalModels
from core.node.disks.places import PARTIAL, begun_place, check_usable, free_place
from core.settings import GB, MIB

SPARE_BYTES: Final = GB
MAX_WEIGHTS: Final = 1000 * GB
_WEIGHTS: Final = re.compile(r"model[A-Za-z0-9_-]{0,100}(\.[A-Za-z0-9_-]{1,50})?\.safetensors")

MEASURED_BYTES: Final = 16 * MIB

Stage = Literal["running", "checking"]
Report = Callable[[Stage, int, int], None]
Way = Literal["macs", "hub"]
Bring = Callable[[Report], Awaitable[None]]
Warn = Callable[[str, str], None]


class Told(NamedTuple):
    """Who is told while a model comes. `report` gets "running" or "checking", bytes that are there, and of how many;
    `warn` the device id of a Mac that sent something damaged, and what; `comes_from` that of the Mac that is asked
    first, or "" for the hub, whenever that changes.
    """

    report: Report
    warn: Warn
    comes_from: Callable[[str], None]


class ModelCopies:
    """Gives files of models to linked Macs, and fetches models from them into `folder`, a directory each."""

    def __init__(self, models: LocalModels, sender: FileSender, links: ByteLinks, folder: Path) -> None:
        self._models, self._folder = models, folder
        self.serving = FileServing(models, sender, links)
        self._requests = BlockRequests(sender, links)
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
                self._requests.settle(device_id, message)

    def gone(self, device_id: str) -> None:
        """That Mac is linked no more."""
        self._requests.gone(device_id)
        self.serving.gone(device_id)

    async def fetch(
        self,
        sources: Sequence[str],
        model: HeldModel,
        told: Told,
        parts: Sequence[Part] = (),
        pace: BytePace | None = None,
    ) -> None:
        """Copy a model from linked Macs that have all or some of it, or `parts` of it with all of its settings; nobody
        is asked where all of that is here. `pace` is that of all that comes.

        Raises TransferError, ModelMismatch, LinkLost, LinkTimeout, BadModel; what is there then is kept, and gone on
        with. Where the model is of the hub, what no Mac has comes from there, or all where that was faster.
        """
        entries = await self._models.list()
        if await asyncio.to_thread(_is_here, entries, model, parts):
            return
        files, alike = await self._files_and_sources(sources, model, entries)
        wanted = wanted_parts(files, parts)
        begun = await asyncio.to_thread(_begun, self._folder, entries, model, files)
        await asyncio.to_thread(_check_room, begun, files, wanted)
        await self._bring(alike, model, files, begun, wanted, told, pace or BytePace())
        await asyncio.to_thread(_check, begun, model)
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
        told = dict(zip(sources, await together(self._files(source, model) for source in sources), strict=True))
        said = {source: reply for source, reply in told.items() if isinstance(reply, FilesSent)}
        if said:
            files = next(iter(said.values())).files
            return files, {source: reply.is_whole for source, reply in said.items() if reply.files == files}
        if model.hub and (here := await asyncio.to_thread(_files_here, entries, model)):
            return here, {}
        for error in told.values():
            if isinstance(error, MaclusterError):
                raise error
        raise TransferError(f"No linked Mac has {model.name}.", "Bring back the Mac that has it, then try again.")

    async def _files(self, source: str, model: HeldModel) -> FilesSent | MaclusterError:
        """Which files that Mac says make up the model, or why it helps nobody."""
        try:
            reply = await self._requests.files(source, model.fingerprint)
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
        told: Told,
        pace: BytePace,
    ) -> None:
        """One way after the other, until all is there."""
        ways: dict[Way, Bring] = {}
        if sources:
            ways["macs"] = partial(self._from_macs, sources, model, files, begun, wanted, told.warn, pace)
        if hub := model.hub:
            ways["hub"] = lambda report: hub_models.bring(
                model.name, begun, dict(files), hub, wanted, _stages(report), pace
            )
        order = in_order(ways, self._rates)
        for way in order:
            meter = RateMeter(told.report)
            told.comes_from("" if way == "hub" else next(iter(sources)))
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
        pace: BytePace,
        report: Report,
    ) -> None:
        writer = await asyncio.to_thread(BlockWriter, begun, files)
        try:
            fetch = BlockFetch(
                self._requests,
                model.fingerprint,
                files,
                sources,
                writer,
                lambda *told: report("running", *told),
                warn,
                lambda missing: _check_free(begun, missing, SPARE_BYTES // 2),
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


class RateMeter:
    """How fast the bytes came that were counted, none for what was too few to tell."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._begun_at, self._first, self._last = monotonic(), -1, 0

    def count(self, stage: Stage, done: int, total: int) -> None:
        """So many are there."""
        if stage == "running":
            self._first = done if self._first < 0 else self._first
            self._last = done
        self._report(stage, done, total)

    @property
    def rate(self) -> float:
        """Bytes a second, 0 where that cannot be said."""
        came = self._last - self._first
        return came / max(monotonic() - self._begun_at, 0.001) if came >= MEASURED_BYTES else 0.0


def in_order(ways: Iterable[Way], rates: Mapping[Way, float]) -> list[Way]:
    """Linked Macs first, unless the hub was faster than they were."""
    is_hub_faster = "macs" in rates and rates.get("hub", 0.0) > rates["macs"]
    return sorted(ways, key=lambda way: (way == "hub") != is_hub_faster)


def _stages(report: Report) -> Callable[[bool, int, int], None]:
    return lambda is_checking, done, total: report("checking" if is_checking else "running", done, total)


def check_names(files: Mapping[str, FileFacts]) -> None:
    """What may be written on this Mac for another one: plain names of the kinds of files that make up a model, no
    path, nothing that can run code, no size that no model has. Raises TransferError.
    """
    for name, facts in files.items():
        is_weights = _WEIGHTS.fullmatch(name) is not None
        if not (is_weights or name in DECIDING_FILES):
            raise TransferError(f"The other Mac offers the file {name!r:.80}, which does not belong to a model.")
        if facts.size > (MAX_WEIGHTS if is_weights else MAX_JSON_BYTES):
            raise TransferError(f"The other Mac says that {name} has {facts.size} bytes.")
    if not any(_WEIGHTS.fullmatch(name) for name in files):
        raise TransferError("The other Mac offers a model without weights.")


def wanted_parts(files: Mapping[str, FileFacts], parts: Sequence[Part]) -> tuple[Part, ...]:
    """All settings, and `parts`, or all weights where there are none. Raises TransferError for what is in no file."""
    for part in parts:
        if part.file not in files or not part.begin <= part.end <= files[part.file].size:
            raise TransferError(f"The part {part.begin}–{part.end} of {part.file!r:.80} is not in the model.")
    settings = {name: facts for name, facts in files.items() if not _WEIGHTS.fullmatch(name)}
    return (*whole_parts(settings), *parts) if parts else whole_parts(files)


def _is_here(entries: Sequence[ModelEntry], model: HeldModel, parts: Sequence[Part]) -> bool:
    """Whether `parts` of a model, or all of it where there are none, lie on this disk among the models."""
    for entry in entries:
        if entry.fingerprint == model.fingerprint:
            there = read_map(Path(entry.path))
            if there is None or not there.lacking(wanted_parts(there.files, parts)):
                return True
    return False


def _files_here(entries: Sequence[ModelEntry], model: HeldModel) -> Mapping[str, FileFacts] | None:
    """The files of a model of which a part is here."""
    maps = (read_map(Path(entry.path)) for entry in entries if entry.fingerprint == model.fingerprint)
    return next((there.files for there in maps if there), None)


def _begun(folder: Path, entries: Sequence[ModelEntry], model: HeldModel, files: Mapping[str, FileFacts]) -> Path:
    """Where to write: where a part of the model lies already, else a folder of its own. Raises ModelMismatch,
    TransferError.
    """
    for entry in entries:
        place = Path(entry.path)
        if entry.fingerprint == model.fingerprint and place.parent == folder and (there := read_map(place)):
            if there.files != files:
                what = f"{entry.name} on this Mac is a part of other files than those of that Mac."
                raise ModelMismatch(what, f"Delete {place}, then copy again.")
            return place
    return begun_place(folder, model.fingerprint)


def _check_room(begun: Path, files: Mapping[str, FileFacts], wanted: Sequence[Part]) -> None:
    """Raises TransferError where there is no room for what lacks."""
    try:
        there = read_map(begun)
    except BadModel:
        there = None
    known = there if there and there.files == files else BlockMap(files, {})
    _check_free(begun, sum(part.nbytes for part in known.lacking(wanted)), SPARE_BYTES)


def _check_free(begun: Path, missing: int, spare: int) -> None:
    """Raises TransferError where the disk would not have `spare` bytes left, or lost them to others meanwhile."""
    free = shutil.disk_usage(begun).free
    if missing + spare > free:
        what = (
            f"{missing / GB:.1f} GB are missing, and {free / GB:.1f} GB are free on this disk, "
            f"of which {spare / GB:.1f} GB stay free: {(missing + spare - free) / GB:.1f} GB too little."
        )
        raise TransferError(what, "Make room on the disk, then try again: what is there is kept.")


def _check(begun: Path, model: HeldModel) -> None:
    """Look whether it is the model that was asked for, and can be used."""
    try:
        found = fingerprint(begun)
    except ModelError:
        found = ""
    if found != model.fingerprint:
        shutil.rmtree(begun)
        raise ModelMismatch("Another model arrived than was asked for.", "Check the files on the other Mac.")
    check_usable(begun, "What arrived", "Check the files on the other Mac.")
