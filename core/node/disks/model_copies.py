"""Copies complete or partial models to this Mac's disk, block by block, from other Macs and from the hub.

The first Mac with a block decides its expected hash; its bytes may come from any Mac that claims the same hash.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Final, Literal

from core.errors import MaclusterError, TransferError
from core.models.files.block_map import FileFacts
from core.models.files.block_writer import BlockWriter
from core.models.files.catalog import ModelEntry
from core.models.files.hub_origin import write_origin
from core.models.files.parts import Part
from core.node.base.tasks import Tasks, together
from core.node.disks import copy_checks
from core.node.disks.block_fetch import BlockFetch, WantedCopy, Warn
from core.node.disks.block_requests import BlockLink, BlockRequests
from core.node.disks.block_serving import FileServing
from core.node.disks.byte_links import ByteLinks
from core.node.disks.hub_transfers import fetch_parts
from core.node.disks.local_models import LocalModels
from core.node.disks.messages import HeldModel
from core.node.disks.transfer_progress import Report, TransferPhase, TransferProgress
from core.node.peers.mesh import Mesh
from core.settings import GB, MIB

MEASURED_BYTES: Final = 16 * MIB

Origin = Literal["macs", "hub"]


class ModelCopies:
    """Serves model files to linked Macs, and copies models from them into `folder`, each in a folder of its own."""

    def __init__(self, models: LocalModels, sender: Mesh, links: ByteLinks, folder: Path, tasks: Tasks) -> None:
        self._models, self._folder = models, folder
        self.serving = FileServing(models, sender, links, tasks)
        self.requests = BlockRequests(sender, links, tasks)
        self._rates: dict[Origin, float] = {}

    def gone(self, device_id: str) -> None:
        self.requests.gone(device_id)
        self.serving.gone(device_id)

    async def fetch(
        self,
        sources: Sequence[str],
        model: HeldModel,
        progress: TransferProgress,
        parts: Sequence[Part] = (),
        warn: Warn = lambda *_: None,
    ) -> None:
        """Copy a model, or `parts` of it with all settings, from linked Macs with all or some of it.

        The hub, if the model is from there, provides what no Mac has, or everything if it was faster. No requests are
        sent if all parts are here. Raises TransferError, ModelMismatch, LinkLost, LinkTimeout, BadModel; the next copy
        resumes from the data received.
        """
        entries = await self._models.list()
        here = await asyncio.to_thread(copy_checks.copies_here, entries, model.fingerprint)
        if await asyncio.to_thread(copy_checks.is_here, here, parts):
            return
        with ExitStack() as stack:
            files, alike = await self._files_and_sources(sources, model, here, stack)
            wanted = copy_checks.wanted_parts(files, parts)
            folder = await asyncio.to_thread(copy_checks.folder_to_fill, self._folder, here, model.fingerprint, files)
            await asyncio.to_thread(copy_checks.check_room, folder, files, wanted)
            await self._fetch(WantedCopy(model, files, folder, wanted, alike, progress, warn))
        await asyncio.to_thread(self._put_in_place, folder, model, entries)

    def _put_in_place(self, folder: Path, model: HeldModel, entries: Sequence[ModelEntry]) -> None:
        copy_checks.check_arrived(folder, model)
        if model.hub:
            write_origin(folder, model.hub)
        if folder.parent.name == copy_checks.PARTIAL:
            folder.rename(copy_checks.finished_folder(self._folder, model.name, model.fingerprint, entries))

    async def _files_and_sources(
        self, sources: Sequence[str], model: HeldModel, here: copy_checks.CopiesHere, stack: ExitStack
    ) -> tuple[Mapping[str, FileFacts], Mapping[str, BlockLink]]:
        """The model's files as listed by the first source, and all sources with the same list; for a hub model without
        a source, the files of the partial copy here. `stack` closes the links.
        """
        opened = await together(self._opened(source, model, stack) for source in sources)
        replies = dict(zip(sources, opened, strict=True))
        if found := {source: link for source, link in replies.items() if isinstance(link, BlockLink)}:
            lists = [(await link.files()).files for link in found.values()]
            return lists[0], {mac: found[mac] for mac, files in zip(found, lists, strict=True) if files == lists[0]}
        if model.hub and (there := next(filter(None, here.values()), None)):
            return there.files, {}
        for error in replies.values():
            if isinstance(error, MaclusterError):
                raise error
        raise TransferError(f"No linked Mac has {model.name}.", "Bring back the Mac that has it, then try again.")

    async def _opened(self, source: str, model: HeldModel, stack: ExitStack) -> BlockLink | MaclusterError:
        try:
            link = await self.requests.link(source, model.fingerprint)
            stack.callback(link.close)
            copy_checks.check_names((await link.files()).files)
        except MaclusterError as error:
            return error
        return link

    async def _fetch(self, copy: WantedCopy) -> None:
        """Try one origin after another until all data is there."""
        has: dict[Origin, bool] = {"macs": bool(copy.sources), "hub": copy.model.hub is not None}
        order = in_order([origin for origin in has if has[origin]], self._rates)
        for origin in order:
            try:
                await self._fetch_from(origin, copy)
                return
            except MaclusterError:
                if origin == order[-1]:
                    raise

    async def _fetch_from(self, origin: Origin, copy: WantedCopy) -> None:
        """Fetch from one origin, and measure its rate if enough bytes come."""
        began_at, counts = monotonic(), list[int]()  # the first and the last number of bytes there

        def count(phase: TransferPhase, done: int, total: int) -> None:
            if phase == "running":
                counts[1:] = [done]
            copy.progress.count(phase, done, total)

        copy.progress.update(source="" if origin == "hub" else next(iter(copy.sources)))
        try:
            await (fetch_parts if origin == "hub" else self._fetch_from_macs)(copy, count)
        finally:
            if counts and (came := counts[-1] - counts[0]) >= MEASURED_BYTES:
                self._rates[origin] = came / max(monotonic() - began_at, 0.001)

    async def _fetch_from_macs(self, copy: WantedCopy, report: Report) -> None:
        writer = await asyncio.to_thread(BlockWriter, copy.folder, copy.files)
        try:
            await BlockFetch(self.requests, copy, writer, report).run()
        except OSError as error:
            missing = sum(part.nbytes for part in writer.map.lacking(copy.wanted)) / GB
            what = f"{copy.model.name} can't be written: {error.strerror}; {missing:.1f} GB are missing."
            raise TransferError(what, "Free some space on this disk, then copy again; the copy resumes.") from error
        finally:
            await asyncio.to_thread(writer.close)
        if not writer.map.missing_bytes:
            report("checking", *(2 * [sum(facts.size for facts in copy.files.values())]))
        await asyncio.to_thread(writer.finish)


def in_order(origins: Iterable[Origin], rates: Mapping[Origin, float]) -> list[Origin]:
    """Linked Macs first, unless the hub was faster. `rates`: measured bytes per second."""
    is_hub_faster = "macs" in rates and rates.get("hub", 0.0) > rates["macs"]
    return sorted(origins, key=lambda origin: (origin == "hub") != is_hub_faster)
