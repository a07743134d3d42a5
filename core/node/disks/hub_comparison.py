"""Compares files downloaded from the hub in parts with the hub's SHA-256 of the whole file, before loading them.

One Mac reads each file once from first to last, its own blocks from disk and the others over sealed links, and keeps
only the hash of each block. Every other Mac gets that list from it, or from any Mac that has it, and checks its own
blocks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple, NoReturn

import msgspec

from core.errors import MaclusterError, TransferError
from core.events import Transfer
from core.models.files.block_map import HASH_BYTES, BlockMap, hash_at, read_map, write_map
from core.models.files.checked_files import name_of
from core.models.files.compared_hashes import Compared, doubtful, read_compared, without_false, write_compared
from core.models.files.hub_origin import HubOrigin, read_origin
from core.models.files.layers_on_disk import size_text
from core.models.files.parts import Part
from core.node.base.journal import Journal
from core.node.disks.block_requests import BlockLink
from core.node.disks.byte_links import MAX_HASHES, NOT_HERE, ReceivedBlock, RunRequest, blocks_in
from core.node.disks.current_transfer import CurrentTransfer
from core.node.disks.messages import FalseFile, HeldModel
from core.node.disks.model_copies import ModelCopies
from core.node.disks.model_inventory import ModelInventory
from core.node.disks.transfer_progress import QueuedTransfer, TransferProgress
from core.node.disks.whole_file_hash import file_hashes, read_here
from core.node.peers.mesh import Mesh
from core.rates import Throttle

TELL_S: Final = 0.5
HERE: Final = ""

Tell = Callable[[int, int], None]


class _Files(NamedTuple):
    """Files in a hub model's folder, and links to the Macs asked so far that have the same files or parts of them."""

    model: HeldModel
    directory: Path
    origin: HubOrigin
    there: BlockMap
    links: dict[str, BlockLink]


class HubComparison:
    """Compares files and stores the result in the model's folder, where the next load finds it."""

    def __init__(
        self, inventory: ModelInventory, copies: ModelCopies, sender: Mesh, coming: CurrentTransfer, journal: Journal
    ) -> None:
        self._inventory, self._copies, self._sender = inventory, copies, sender
        self._coming, self._journal = coming, journal

    async def is_due(self, directory: Path) -> bool:
        """Whether a comparison is needed before loading. Raises BadModel."""
        return any(await asyncio.to_thread(doubtful, directory))

    async def ensure(self, directory: Path, fingerprint: str, first: str = "", tell: Tell = lambda *_: None) -> None:
        """Compare a hub model's files, asking the Mac `first` first for its results. `tell` gets the bytes compared and
        their total.

        Raises TransferError naming file and hub if a file fails, after deleting it from every Mac; BadModel, Busy,
        LinkError, and as `ModelCopies.fetch`.
        """
        doubts = await asyncio.to_thread(doubtful, directory)
        if not any(doubts):
            return
        files = await self._files(directory, fingerprint)
        with ExitStack() as stack:
            compared = await self._told(files, doubts.uncompared, first, stack)
            left = [name for name in doubts.uncompared if name not in compared]
            holders = {name: await self._holders(files, name) for name in left}
            if not (rest := nowhere(files.there, holders)):
                if left:
                    self._journal.info(f"{files.model.name}: comparing downloaded parts with the hub's hashes.")
                    compared |= await self._made(files, holders, tell)
                await self._keep(files, compared)
                return
        await self._bring(files, rest)
        await self.ensure(directory, fingerprint, first, tell)

    async def drop(self, _: str, message: FalseFile) -> None:
        """Delete the blocks of a file that another Mac found to differ from the hub's hash; keeps compared files and
        complete models.
        """
        try:
            directory = await self._inventory.models.find_same("", message.fingerprint)
            if message.name in (await asyncio.to_thread(doubtful, directory)).uncompared:
                await self._throw_away(directory, message.fingerprint, {message.name: b""})
                self._journal.warn(f"{message.name} of {name_of(directory)} differs from the hub's file; deleting it.")
        except MaclusterError as error:  # the file stays, and isn't loaded
            self._journal.warn(f"{message.name} differs from the hub's file, but can't be deleted: {error.what}")

    async def _files(self, directory: Path, fingerprint: str) -> _Files:
        model = self._inventory.find(fingerprint)
        there = await asyncio.to_thread(read_map, directory)
        origin = await asyncio.to_thread(read_origin, directory)
        if model is None or there is None or origin is None:
            raise TransferError(f"{name_of(directory)} changed during the check.", "Load it again.")
        return _Files(model, directory, origin, there, {})

    async def _told(self, files: _Files, names: Sequence[str], first: str, stack: ExitStack) -> dict[str, bytes]:
        """Results of other Macs, asked one after another until all are found. Adds links, which `stack` closes."""
        found: dict[str, bytes] = {}
        for mac in sorted(self._inventory.others_with(files.model.fingerprint), key=lambda mac: mac != first):
            try:
                link = await self._copies.requests.link(mac, files.model.fingerprint)
                stack.callback(link.close)
                if (await link.files()).files != files.there.files:
                    continue
                for name in [name for name in names if name not in found]:
                    if hashes := await self._hashes(files, link, name, compared=True):
                        found[name] = hashes
            except MaclusterError as error:
                self._journal.info(f"{mac[:8]} can't help to compare {files.model.name}: {error.what}")
                continue
            files.links[mac] = link
            if len(found) == len(names):
                break
        return found

    async def _hashes(self, files: _Files, link: BlockLink, name: str, *, compared: bool = False) -> bytes:
        """Hashes of all blocks of a file on another Mac; b"" if `compared` ones are requested and it has none."""
        blocks, found = files.there.files[name].blocks, b""
        for at in blocks[::MAX_HASHES]:
            page = await link.hashes(name, at, compared=compared)
            if not page:
                break
            found += page
        return found if len(found) == HASH_BYTES * len(blocks) else b""

    async def _holders(self, files: _Files, name: str) -> list[str | None]:
        """Mac with each block: HERE for this one, None if no linked Mac has it."""
        here = files.there.hashes[name]
        found: list[str | None] = [HERE if block in here else None for block in files.there.files[name].blocks]
        for mac, link in files.links.items():
            hashes = await self._hashes(files, link, name)
            for block in range(len(hashes) // HASH_BYTES):
                if found[block] is None and hash_at(hashes, block) != NOT_HERE:
                    found[block] = mac
        return found

    async def _bring(self, files: _Files, rest: Sequence[Part]) -> None:
        """Download blocks that no linked Mac has, because the hub's hash covers the whole file."""
        model = msgspec.structs.replace(files.model, hub=files.origin)
        first = Transfer(model=model.name, mac=self._inventory.own_id, state="asking")
        unseen = TransferProgress(QueuedTransfer(first=first), lambda *_: None)
        try:
            with self._coming.held():
                await self._copies.fetch((), model, unseen, rest)
        except MaclusterError as error:
            nbytes = size_text(sum(part.nbytes for part in rest))
            what = f"{model.name} can't be compared with the hub's hashes: {nbytes} of it are on no linked Mac."
            raise TransferError(f"{what} {error.what}", error.fix) from error

    async def _made(self, files: _Files, holders: Mapping[str, Sequence[str | None]], tell: Tell) -> dict[str, bytes]:
        total, done = sum(files.there.files[name].size for name in holders), 0
        throttle = Throttle(TELL_S)

        def count(nbytes: int) -> None:
            nonlocal done
            done += nbytes
            if throttle.take(monotonic()):
                tell(done, total)

        async def read(mac: str, run: RunRequest) -> list[ReceivedBlock]:
            if mac == HERE:
                return await asyncio.to_thread(read_here, files.directory, files.there, run)
            sent = list(blocks_in(run, files.there.files[run.name], await files.links[mac].ask(run)))
            if len(sent) < run.count:
                what = f"A part of {run.name} is no longer on the Mac that had it."
                raise TransferError(what, "Load the model again.")
            return sent

        made: dict[str, bytes] = {}
        for name, macs in holders.items():
            found = await file_hashes(name, [mac or HERE for mac in macs], read, count)
            if found.sha256 != files.there.files[name].sha256:
                await self._refuse(files, name)
            made[name] = found.blocks
        return made

    async def _refuse(self, files: _Files, name: str) -> NoReturn:
        for mac in files.links:
            await self._sender.send(mac, FalseFile(fingerprint=files.model.fingerprint, name=name))
        await self._throw_away(files.directory, files.model.fingerprint, {name: b""})
        what = f"{name} differs from {files.origin.repo} on the hub: the SHA-256 of the whole file is different."
        raise TransferError(what, "Its blocks were deleted: load again to download it again, without a mirror.")

    async def _keep(self, files: _Files, compared: Compared) -> None:
        """Store the comparison and delete blocks that fail it. Raises TransferError if any does."""

        def note() -> dict[str, bytes]:
            known = {**read_compared(files.directory, files.there.files), **compared}
            write_compared(files.directory, files.there.files, known)
            return known

        known = await asyncio.to_thread(note)
        if without_false(files.there, known).there_bytes < files.there.there_bytes:
            await self._throw_away(files.directory, files.model.fingerprint, known)
            what = f"Some files of {files.model.name} from {files.origin.repo} don't match the hub's hashes."
            raise TransferError(what, "Load again: the wrong blocks were deleted and will be downloaded again.")

    async def _throw_away(self, directory: Path, fingerprint: str, compared: Compared) -> None:
        """Remove the blocks from the map that differ from the compared files."""

        def change() -> None:
            if there := read_map(directory):
                write_map(directory, without_false(there, compared))

        with self._coming.held():
            self._copies.serving.forget(fingerprint)
            await asyncio.to_thread(change)
        await self._inventory.look()


def nowhere(there: BlockMap, holders: Mapping[str, Sequence[str | None]]) -> Sequence[Part]:
    """Parts of the files in `holders` that no Mac has. `holders`: the Mac with each block."""
    somewhere = {
        name: {block: b"" for block, mac in enumerate(macs) if mac is not None} for name, macs in holders.items()
    }
    whole = [Part(file=name, begin=0, end=there.files[name].size) for name in holders]
    return BlockMap(there.files, somewhere).lacking(whole)
