"""Commands and messages about model transfers: to this Mac's disk, and to other Macs that copy from it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from core.errors import Busy, LinkLost, MaclusterError, ModelNotFound, NotPaired, TransferError, UsageError, error_from
from core.events import Transfer
from core.models.files.hub_download_messages import FetchOrder
from core.models.files.layers_on_disk import layers_text
from core.models.files.parts import Part, by_file, in_fewer, parts_in
from core.node.base.context import NodeContext
from core.node.disks.current_transfer import CurrentTransfer
from core.node.disks.hub_transfers import begin_model, download
from core.node.disks.messages import MAX_PARTS, CopyChange, CopyProgress, HeldModel, PeerCopyRequest
from core.node.disks.model_copies import ModelCopies
from core.node.disks.model_inventory import ModelInventory
from core.node.disks.transfer_progress import QueuedTransfer, TransferProgress
from core.node.peers.mesh import Mesh
from core.requests.disks import CopyRequest, DownloadRequest, TransferOrder

STOP_S: Final = 5.0


class Transfers:
    """Starts and changes transfers; publishes Transfer events, also of other Macs' copies requested by this one."""

    def __init__(
        self, node: NodeContext, inventory: ModelInventory, copying: ModelCopies, links: Mesh, hub: Path
    ) -> None:
        self._device_id, self._bus, self._journal, self._tasks = node.own_id, node.bus, node.journal, node.tasks
        self._inventory, self._copying, self._links = inventory, copying, links
        self._folder, self._hub = node.home.models, hub
        # transfer to this Mac's disk
        self.own = CurrentTransfer(node, inventory, self._carry_out, self._publish)
        # by device id: bytes copied to its disk since the node started
        self.fetched: Counter[str] = Counter()
        # by device id: bytes per second of the last copy
        self.rates: dict[str, float] = {}
        self._there: dict[str, int] = {}

    async def download(self, wanted: DownloadRequest) -> None:
        """Start or resume a download from the hub. Raises Busy."""
        limit = wanted.bytes_per_s
        first = Transfer(model=wanted.repo, mac=self._device_id, state="asking", limit_bytes_per_s=limit)
        self.own.begin(QueuedTransfer(first=first, download=wanted))

    async def copy(self, wanted: CopyRequest) -> None:
        """Start copying a model, or part of it, to Macs' disks. Raises ModelNotFound, NotPaired, Busy, UsageError."""
        parts = in_fewer((Part(file=file, begin=begin, end=end) for file, begin, end in wanted.parts), MAX_PARTS)
        asked = PeerCopyRequest(fingerprint=wanted.fingerprint, parts=by_file(parts), bytes_per_s=wanted.bytes_per_s)
        model, holdings = self._inventory.find(wanted.fingerprint), self._inventory.holdings(wanted.fingerprint)
        if model is None:
            raise ModelNotFound("No linked Mac has that model any more.")
        if not wanted.parts and (nowhere := holdings.nowhere(range(model.layers))):
            raise ModelNotFound(f"No linked Mac has {layers_text(nowhere)} of {model.name}.")
        for mac in wanted.to:
            if mac in holdings.whole:  # an event, since the asker waits for one
                self._bus.publish(msgspec.structs.replace(_first(model, "", mac), state="done"))
            elif mac == self._device_id:
                self._begin_copy(mac, model, parts, wanted.bytes_per_s)
            elif self._device_id not in holdings.held:
                raise ModelNotFound(f"{model.name} is not on this Mac.", "Copy it here first, then to the others.")
            elif await self._links.send(mac, asked):
                self._bus.publish(_first(model, self._device_id, mac))
            else:
                raise NotPaired("That Mac is not linked.", "Wait until it is there, or pair it.")

    async def bring(self, wanted: CopyRequest, show: Callable[[Transfer], None]) -> None:
        """Copy to one Mac and wait for the end; `show` gets the progress. Cancelling stops the copy. Raises as `copy`,
        the problem of the copy, and TransferError if it was stopped.
        """
        (mac,) = wanted.to
        try:
            await self._follow_to_end(mac, partial(self.copy, wanted), show)
        except asyncio.CancelledError:
            with suppress(TimeoutError, MaclusterError):
                async with asyncio.timeout(STOP_S):
                    await self._follow_to_end(
                        mac, partial(self._change, mac, wanted.fingerprint, TransferOrder(what="stop")), show
                    )
            raise

    async def _follow_to_end(
        self, mac: str, begin: Callable[[], Awaitable[object]], show: Callable[[Transfer], None]
    ) -> None:
        async with aclosing(self._bus.follow()) as events:
            await anext(events)  # skips the previous state
            await begin()
            async for event in events:
                if isinstance(event, Transfer) and event.mac == mac:
                    show(event)
                    if event.problem:
                        raise error_from(event.problem)
                    if event.state == "stopped":
                        raise TransferError(f"The copy of {event.model} was stopped.", "The next copy resumes.")
                    if event.is_over:
                        return

    async def change(self, order: TransferOrder) -> None:
        """Stop, pause, resume or limit transfers here and on Macs that copy for this one; received data is kept.

        Raises UsageError if there is no such transfer.
        """
        meant = [t for t in self._bus.now.transfers if not order.macs or t.mac in order.macs]
        if not meant and order.what != "stop":
            raise UsageError(f"There is no transfer to {order.what}.", "`macluster transfers` lists the transfers.")
        for transfer in meant:
            await self._change(transfer.mac, transfer.fingerprint, order)

    async def _change(self, mac: str, fingerprint: str, order: TransferOrder) -> None:
        if mac == self._device_id:
            self.own.change(order.what, order.bytes_per_s)
        else:
            change = CopyChange(fingerprint=fingerprint, what=order.what, bytes_per_s=order.bytes_per_s)
            await self._links.send(mac, change)

    def change_for(self, device_id: str, change: CopyChange) -> None:
        """Change a copy that this Mac makes for another one, on its request."""
        if self.own.is_for(device_id, change.fingerprint):
            self.own.change(change.what, change.bytes_per_s)

    def gone(self, device_id: str) -> None:
        self._copying.gone(device_id)
        for known in self._bus.now.transfers:
            if known.mac == device_id:
                problem = LinkLost("The Mac that copied it is gone.", "Copy again when it is back.").problem
                self._bus.publish(msgspec.structs.replace(known, state="failed", problem=problem))

    def note_progress(self, device_id: str, message: CopyProgress) -> None:
        """Publish progress reported by another Mac, only of a copy requested here; the Mac can't change the model or
        invent a source.
        """
        known = next((known for known in self._bus.now.transfers if known.mac == device_id), None)
        if known:
            progress = message.transfer
            same = {"model": known.model, "fingerprint": known.fingerprint, "mac": known.mac}
            source = progress.source if progress.source in ("", *self._links.contacts) else self._device_id
            self._note(msgspec.structs.replace(progress, **same, source=source))

    async def copy_for(self, device_id: str, asked: PeerCopyRequest) -> None:
        """Copy a model that another Mac sends, on its request."""
        model = self._inventory.find(asked.fingerprint)
        try:
            if model is None or device_id not in self._inventory.holdings(asked.fingerprint).held:
                raise ModelNotFound("That Mac has not reported such a model.")
            if self.own.failed_just_now():
                raise Busy("Copying to that Mac failed a moment ago.", "Try again in a few seconds.")
            self._begin_copy(device_id, model, parts_in(asked.parts), asked.bytes_per_s)
        except (ModelNotFound, Busy) as error:
            name = model.name if model else "A model"
            failed = Transfer(model=name, mac=self._device_id, state="failed", problem=error.problem)
            await self._report_to_asker(device_id, failed)

    def _begin_copy(self, asker: str, model: HeldModel, parts: Sequence[Part], bytes_per_s: int) -> None:
        """Start a copy to this disk, requested by `asker` (possibly this Mac)."""
        sources = self._sources(model, asker)
        if not sources and not model.hub:
            raise ModelNotFound(f"No other linked Mac has any part of {model.name}.")
        first = _first(model, sources[0] if sources else "", self._device_id, bytes_per_s)
        asked_by = asker if asker != self._device_id else ""
        self.own.begin(QueuedTransfer(first=first, parts=by_file(parts), asked_by=asked_by))

    def _sources(self, model: HeldModel, asker: str) -> list[str]:
        whole = self._inventory.holdings(model.fingerprint).whole
        others = self._inventory.others_with(model.fingerprint)
        return sorted(others, key=lambda mac: mac != asker or mac not in whole)

    def _note(self, transfer: Transfer) -> None:
        if transfer.bytes_per_s > 0:
            self.rates[transfer.mac] = transfer.bytes_per_s
        if transfer.total:
            # bytes already there don't count
            self.fetched[transfer.mac] += max(0, transfer.done - self._there.get(transfer.mac, transfer.done))
            self._there[transfer.mac] = transfer.done
        if transfer.is_over:
            self._there.pop(transfer.mac, None)
        self._bus.publish(transfer)

    def _publish(self, transfer: Transfer, asked_by: str) -> None:
        self._note(transfer)
        if asked_by:
            self._tasks.spawn("The report of a copy", self._report_to_asker(asked_by, transfer))

    async def _report_to_asker(self, device_id: str, transfer: Transfer) -> None:
        await self._links.send(device_id, CopyProgress(transfer=transfer))

    async def _carry_out(self, progress: TransferProgress) -> None:
        transfer = progress.queued
        if (wanted := transfer.download) and wanted.split:
            models, folder = self._inventory.models, self._folder
            found = await begin_model(models, folder, wanted.repo, wanted.revision, progress)
            progress.update(fingerprint=found)
            return
        if wanted:
            cache = str(self._hub)
            order = FetchOrder(repo=wanted.repo, revision=wanted.revision, cache=cache, anyway=wanted.anyway)
            await download(order, wanted.repo, progress, progress.count)
            return
        if (model := self._inventory.find(transfer.first.fingerprint)) is None:
            what = f"No linked Mac has {transfer.first.model} now."
            raise ModelNotFound(what, "Bring back one that has it, then copy again.")
        sources, warn = self._sources(model, transfer.asked_by), partial(self._warn, model.name)
        await self._copying.fetch(sources, model, progress, parts_in(transfer.parts), warn)

    def _warn(self, model: str, source: str, what: str) -> None:
        again = "It is requested again, from another Mac if possible."
        self._journal.warn(f"{model}: {what} from {self._bus.now.name_of(source)} arrived damaged. {again}")


def _first(model: HeldModel, source: str, mac: str, limit: int = 0) -> Transfer:
    first = Transfer(model=model.name, fingerprint=model.fingerprint, mac=mac, source=source, state="asking")
    return msgspec.structs.replace(first, limit_bytes_per_s=limit)
