"""Frees room on this Mac's disk: model files that macluster has written and no plan needs."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from core.errors import Busy, ModelError, TransferError, UsageError
from core.events import Plan, Value
from core.models.files.block_map import BLOCK_BYTES, BlockMap, Sha256, read_written
from core.models.files.catalog import ModelEntry
from core.models.files.checked_files import name_of
from core.models.files.freeing_blocks import kept_of, let_go, taken_bytes
from core.models.files.hub_origin import read_origin
from core.models.files.layers_on_disk import layers_here
from core.models.files.model_folder import read_folder
from core.models.files.parts import Part, ranges
from core.node.base.context import NodeContext
from core.node.base.signals import Signals
from core.node.base.tasks import Tasks
from core.node.disks.block_serving import FileServing
from core.node.disks.copy_checks import PARTIAL
from core.node.disks.current_transfer import CurrentTransfer
from core.node.disks.model_inventory import ModelInventory
from core.node.peers.worker_state import WorkerState
from core.node.ring.plan_member import StageTaken
from core.node.ring.split_profiles import SplitProfiles
from core.numbers import Size
from core.plan.topology import has_ranks
from core.requests.disks import Trimmable, TrimRequest
from core.settings import Home
from core.trust.file_formats import JsonFile
from core.trust.private_files import private_folder

MOST_MODELS: Final = 200


class HeldLayers(Value, frozen=True, kw_only=True):
    """A stage's share of a model."""

    start: Size  # layers [start, stop)
    stop: Size
    embed: bool  # with the embedding
    output: bool  # with the output head
    is_whole: bool  # a part of every layer (tensor parallel)

    @property
    def words(self) -> str:
        """The form that `core.models.slicing.examine` reads."""
        return f"{self.start}:{self.stop}:{'e' * self.embed}{'o' * self.output}"


_FILE: Final = JsonFile[dict[Sha256, HeldLayers]](Home.stages, dict[Sha256, HeldLayers])


class LayersHeldLast:
    """The last stage of each model by fingerprint, remembered in a file."""

    def __init__(self, file: Path, signals: Signals, tasks: Tasks) -> None:
        self._file, self._tasks = file, tasks
        self._known = read_stages(file)
        signals.on(StageTaken, self._note)

    def of(self, fingerprint: str) -> HeldLayers | None:
        return self._known.get(fingerprint)

    def _note(self, taken: StageTaken) -> None:
        found = stage_in(taken.plan, taken.index)
        if self._known.get(taken.plan.fingerprint) == found:
            return
        self._known.pop(taken.plan.fingerprint, None)
        self._known = dict([*self._known.items(), (taken.plan.fingerprint, found)][-MOST_MODELS:])
        self._tasks.spawn("Remembering a stage", asyncio.to_thread(write_stages, self._file, self._known))


def stage_in(plan: Plan, index: int) -> HeldLayers:
    stage = plan.stages[index]
    return HeldLayers(
        start=stage.start,
        stop=stage.stop,
        embed=stage.start == 0,
        output=stage.device_id == plan.output,
        is_whole=has_ranks(plan),
    )


def read_stages(file: Path) -> dict[Sha256, HeldLayers]:
    """Read the file; one that is damaged, newer, or not private to this user, counts as empty."""
    return _FILE.try_to_read(file) or {}


def write_stages(file: Path, known: dict[Sha256, HeldLayers]) -> None:
    _FILE.try_to_write(file, known)  # on a full disk the next loaded plan repeats it


class _Trim(NamedTuple):
    """Files to delete. `kept`: the map of what stays, of `there`; None to delete the whole folder. `stage`: which part
    they are not in.
    """

    trimmable: Trimmable
    fingerprint: str = ""
    there: BlockMap | None = None
    kept: BlockMap | None = None
    stage: HeldLayers | None = None


class Trimming:
    """Looks where this node keeps downloads, and nowhere else."""

    def __init__(
        self,
        node: NodeContext,
        inventory: ModelInventory,
        serving: FileServing,
        coming: CurrentTransfer,
        profiles: SplitProfiles,
        worker: WorkerState,
    ) -> None:
        self._folder, self._models, self._inventory = node.home.models, inventory.models, inventory
        self._serving, self._coming, self._profiles, self._worker = serving, coming, profiles, worker
        self._stages = LayersHeldLast(node.home.stages, node.signals, node.tasks)

    async def trim(self, asked: TrimRequest) -> list[Trimmable]:
        """The deletable files, deleted with `go`. Raises Busy while a model is fetched or loaded, ModelNotFound,
        UsageError for a model that macluster did not write, TransferError.
        """
        if self._worker.is_loading:
            raise Busy("A model is being loaded.", "Wait until it is ready, or unload it.")
        with self._coming.held():
            found = [await self._named(asked.model)] if asked.model else await self._all()
            trims = [trim for trim in found if trim]
            if asked.go:
                for trim in trims:
                    await self._go(trim)
                await self._inventory.look()
        return [trim.trimmable for trim in trims]

    async def _all(self) -> list[_Trim | None]:
        found: list[_Trim | None] = []
        for entry in await self._models.list():
            if Path(entry.path).parent == self._folder and self._stages.of(entry.fingerprint):
                with suppress(ModelError):  # the list of models shows what is wrong with it
                    found.append(await self._extra(entry))
        return [*found, *await asyncio.to_thread(lambda: list(self._begun()))]

    async def _named(self, model: str) -> _Trim | None:
        entry = await self._models.find(model)
        there = await asyncio.to_thread(written, Path(entry.path))
        if Path(entry.path).parent != self._folder or there is None:
            what = f"{entry.name} is in {entry.path}, which macluster did not write, so it is left alone."
            raise UsageError(what, "Delete it by hand if you don't want it.")
        if self._stages.of(entry.fingerprint):
            return await self._extra(entry)
        nbytes = await asyncio.to_thread(taken_bytes, Path(entry.path), there.files)
        return _Trim(self._trimmable(entry, entry.layers_here or ((0, entry.layers),), nbytes), entry.fingerprint)

    async def _extra(self, entry: ModelEntry) -> _Trim | None:
        stage = self._stages.of(entry.fingerprint)
        there = await asyncio.to_thread(written, Path(entry.path))
        if there is None or stage is None or stage.is_whole:
            return None
        (needed,) = await self._profiles.slices(entry, (stage.words,))
        kept = kept_of(there, [Part(file=file, begin=begin, end=end) for file, begin, end in needed])
        taken = await asyncio.to_thread(taken_bytes, Path(entry.path), there.files)
        # more than the map lists was left by a trim that was killed
        nbytes = max(there.there_bytes, taken) - kept.there_bytes
        if nbytes < BLOCK_BYTES:
            return None
        folder = await asyncio.to_thread(read_folder, Path(entry.path))
        before = _numbers(entry.layers_here or ((0, entry.layers),))
        after = _numbers(layers_here(entry.layers, folder.headers, kept))
        trimmable = self._trimmable(entry, ranges(sorted(before - after)), nbytes, ranges(sorted(after)))
        return _Trim(trimmable, entry.fingerprint, there, kept, stage)

    def _trimmable(
        self,
        entry: ModelEntry,
        layers: tuple[tuple[int, int], ...],
        nbytes: int,
        kept: tuple[tuple[int, int], ...] = (),
    ) -> Trimmable:
        only_here = self._inventory.holdings(entry.fingerprint).only_on(self._inventory.own_id, _numbers(layers))
        return Trimmable(name=entry.name, path=entry.path, nbytes=nbytes, layers=layers, kept=kept, only_here=only_here)

    def _begun(self) -> Iterator[_Trim]:
        begun = self._folder / PARTIAL
        for folder in sorted(begun.iterdir()) if begun.is_dir() else ():
            if folder.is_dir() and not folder.is_symlink():
                files = [file.name for file in folder.iterdir() if file.is_file()]
                yield _Trim(
                    Trimmable(name=self._begun_name(folder), path=str(folder), nbytes=taken_bytes(folder, files))
                )

    def _begun_name(self, folder: Path) -> str:
        origin, known = read_origin(folder), self._inventory.find(folder.name)
        return origin.repo if origin else known.name if known else folder.name[:12]

    async def _go(self, trim: _Trim) -> None:
        folder = Path(trim.trimmable.path)
        if trim.fingerprint:
            self._serving.forget(trim.fingerprint)
        if trim.there and trim.kept:
            await asyncio.to_thread(_let_go, folder, trim.there, trim.kept, lambda: self._is_still(trim))
        else:
            await asyncio.to_thread(_remove, folder, self._folder)

    def _is_still(self, trim: _Trim) -> bool:
        return self._stages.of(trim.fingerprint) == trim.stage


def written(directory: Path) -> BlockMap | None:
    there = read_written(directory)
    if there is None:
        return None
    sizes = {name: (directory / name).lstat().st_size for name in there.files if (directory / name).is_file()}
    return there if sizes == {name: facts.size for name, facts in there.files.items()} else None


def _let_go(folder: Path, there: BlockMap, kept: BlockMap, is_still_so: Callable[[], bool]) -> None:
    try:
        let_go(folder, there, kept, is_still_so)
    except OSError as error:
        what = f"{name_of(folder)} could not be trimmed: {error.strerror}."
        raise TransferError(what, "What its map lists is still there; try again.") from error


def _remove(folder: Path, below: Path) -> None:
    """Move it aside first: a half-deleted folder must not look like a model."""
    try:
        if folder.parent.name != PARTIAL:
            private_folder(below / PARTIAL, TransferError)
            shutil.rmtree(aside := below / PARTIAL / f"removed-{folder.name}", ignore_errors=True)
            folder = folder.rename(aside)
        shutil.rmtree(folder)
    except OSError as error:
        raise TransferError(f"{folder} could not be removed: {error.strerror}.", "Delete it by hand.") from error


def _numbers(layers: tuple[tuple[int, int], ...]) -> set[int]:
    return {layer for start, stop in layers for layer in range(start, stop)}
