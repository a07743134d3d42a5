"""Models on their way to this Mac's disk, from the hub or another Mac, and to other Macs that copy from here for us."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from math import inf
from pathlib import Path
from time import monotonic
from typing import Final, Literal

import msgspec

from core.errors import Busy, LinkLost, MaclusterError, ModelNotFound, NotPaired, TransferError, error_from
from core.events import ModelsChanged, Transfer
from core.models.files.fetch_messages import FetchOrder
from core.models.files.layers_here import layers_text
from core.models.files.parts import Part, in_fewer
from core.node.base.bus import Bus
from core.node.base.journal import Journal
from core.node.base.messages import MAX_PARTS, CopyAsk, CopyProgress, CopyWord, FileWord, HeldModel, Holds, HoldsAsk
from core.node.base.tasks import Tasks
from core.node.disks.downloads import download
from core.node.disks.model_copies import ModelCopies, Stage
from core.node.disks.model_inventory import ModelInventory, ModelLinks
from core.node.disks.pace import CopyPace
from core.requests import CopyRequest, Done, DownloadRequest

TRANSFER_EVERY_S: Final = 0.5
RATE_S: Final = 5.0
ASKED_REST_S: Final = 2.0
STOP_S: Final = 5.0

Work = Callable[["Meter"], Awaitable[None]]


class Transfers:
    """One at a time to this Mac's disk. Publishes Transfer events, also for the Macs that copy from here for us.
    `rates`: how quick the last copy to each Mac was, in bytes a second.
    """

    def __init__(
        self,
        device_id: str,
        inventory: ModelInventory,
        copying: ModelCopies,
        links: ModelLinks,
        hub: Path,
        *,
        bus: Bus,
        journal: Journal,
        tasks: Tasks,
    ) -> None:
        self._device_id, self._inventory, self._copying, self._links = device_id, inventory, copying, links
        self._hub = hub
        self._bus, self._journal, self._tasks = bus, journal, tasks
        self._running: asyncio.Task[None] | None = None
        self._asked_by = ""
        self._failed_at = -inf
        self.rates: dict[str, float] = {}

    async def download(self, wanted: DownloadRequest) -> Done:
        """Begin to download a model of the hub, or go on with it. Raises Busy."""
        first = Transfer(model=wanted.repo, mac=self._device_id, state="asking")
        self._begin(first, partial(self._download, wanted))
        return Done()

    async def copy(self, wanted: CopyRequest) -> Done:
        """Begin to copy a model, or a part of it, to the disks of Macs. Raises ModelNotFound, NotPaired, Busy,
        UsageError.
        """
        parts = in_fewer((Part(file=file, begin=begin, end=end) for file, begin, end in wanted.parts), MAX_PARTS)
        model, holdings = self._inventory.find(wanted.fingerprint), self._inventory.holdings(wanted.fingerprint)
        if model is None:
            raise ModelNotFound("No linked Mac has that model any more.")
        if not wanted.parts and (nowhere := holdings.nowhere(range(model.layers))):
            raise ModelNotFound(f"No linked Mac has {layers_text(nowhere)} of {model.name}.")
        for mac in wanted.to:
            if mac in holdings.whole:
                continue
            if mac == self._device_id:
                self._begin_copy(mac, model, parts, wanted.bytes_per_s)
            elif self._device_id not in holdings.held:
                raise ModelNotFound(f"{model.name} is not on this Mac.", "Copy it here first, then to the others.")
            elif await self._links.send(mac, _ask(wanted, parts)):
                self._bus.publish(_first(model, self._device_id, mac))
            else:
                raise NotPaired("That Mac is not linked.", "Wait until it is there, or pair it.")
        return Done()

    async def bring(self, wanted: CopyRequest, tell: Callable[[Transfer], None]) -> None:
        """As `copy` to one Mac, until it is there; `tell` gets how far it is. Who cancels this stops the copy. Raises
        as `copy`, the problem of the copy, and TransferError where it was stopped.
        """
        (mac,) = wanted.to
        if mac in self._inventory.holdings(wanted.fingerprint).whole:
            return
        try:
            await self._to_its_end(mac, partial(self.copy, wanted), tell)
        except asyncio.CancelledError:
            with suppress(TimeoutError, MaclusterError):
                async with asyncio.timeout(STOP_S):
                    await self._to_its_end(mac, partial(self._stop_on, mac, wanted.fingerprint), tell)
            raise

    async def _to_its_end(
        self, mac: str, begin: Callable[[], Awaitable[object]], tell: Callable[[Transfer], None]
    ) -> None:
        async with aclosing(self._bus.follow()) as events:
            await anext(events)  # what is known so far
            await begin()
            async for event in events:
                if isinstance(event, Transfer) and event.mac == mac:
                    tell(event)
                    if event.problem:
                        raise error_from(event.problem)
                    if event.state == "stopped":
                        raise TransferError(f"The copy of {event.model} was stopped.", "The next one goes on there.")
                    if event.is_over:
                        return

    async def stop(self) -> Done:
        """End what runs, here and on the Macs that copy for us; what is there is kept."""
        if self._running:
            self._running.cancel()
        for transfer in self._bus.now.transfers:
            if transfer.mac != self._device_id:
                await self._stop_on(transfer.mac, transfer.fingerprint)
        return Done()

    async def _stop_on(self, mac: str, fingerprint: str) -> None:
        if mac != self._device_id:
            await self._links.send(mac, CopyAsk(fingerprint=fingerprint, go_on=False))
        elif self._running:
            self._running.cancel()

    async def close(self) -> None:
        """The node ends."""
        if self._running:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def handle_message(self, device_id: str, message: Holds | HoldsAsk | FileWord | CopyWord) -> None:
        """Another Mac says something about models and their files."""
        match message:
            case Holds() | HoldsAsk():
                self._tasks.spawn("A message about models", self._inventory.handle_message(device_id, message))
            case CopyAsk():
                await self._copy_for(device_id, message)
            case CopyProgress(transfer=transfer):
                self._handle_progress(device_id, transfer)
            case _:
                self._tasks.spawn("A message about files", self._copying.handle_message(device_id, message))

    def gone(self, device_id: str) -> None:
        """That Mac is linked no more."""
        self._copying.gone(device_id)
        for known in self._bus.now.transfers:
            if known.mac == device_id:
                problem = LinkLost("The Mac that copied it is gone.", "Copy again when it is back.").problem
                self._bus.publish(msgspec.structs.replace(known, state="failed", problem=problem))

    def _handle_progress(self, device_id: str, progress: Transfer) -> None:
        """Of a copy that nobody here asked for nothing is said; nor can that Mac say that it is of something else."""
        known = next((known for known in self._bus.now.transfers if known.mac == device_id), None)
        if known:
            same = {"model": known.model, "fingerprint": known.fingerprint, "mac": known.mac, "source": known.source}
            self._note(msgspec.structs.replace(progress, **same))

    async def _copy_for(self, device_id: str, asked: CopyAsk) -> None:
        """Another member wants this Mac to have a model that it holds."""
        if not asked.go_on:
            if self._running and self._asked_by == device_id:
                self._running.cancel()
            return
        model = self._inventory.find(asked.fingerprint)
        problem: MaclusterError | None = None
        if model is None or device_id not in self._inventory.holdings(asked.fingerprint).held:
            problem = ModelNotFound("That Mac has not reported such a model.")
        elif monotonic() < self._failed_at + ASKED_REST_S:
            problem = Busy("Copying to that Mac failed a moment ago.", "Try again in a few seconds.")
        else:
            try:
                self._begin_copy(device_id, model, _parts_of(asked), asked.bytes_per_s)
            except Busy as busy:
                problem = busy
        if problem:
            name = model.name if model else "A model"
            failed = Transfer(model=name, mac=self._device_id, state="failed", problem=problem.problem)
            await self._report_to_asker(device_id, failed)

    def _begin_copy(self, asker: str, model: HeldModel, parts: Sequence[Part], bytes_per_s: int) -> None:
        """To this disk, as that Mac wants it, which may be this one."""
        holdings = self._inventory.holdings(model.fingerprint)
        sources = [mac for mac in holdings.sources if mac != self._device_id]
        sources.sort(key=lambda mac: mac != asker or mac not in holdings.whole)
        if not sources and not model.hub:
            raise ModelNotFound(f"No other linked Mac has anything of {model.name}.")
        first = _first(model, sources[0] if sources else "", self._device_id)
        asked_by = asker if asker != self._device_id else ""
        self._begin(first, partial(self._copy, sources, model, parts, CopyPace(bytes_per_s)), asked_by)

    def _begin(self, first: Transfer, work: Work, asked_by: str = "") -> None:
        if self._running and not self._running.done():
            raise Busy("A model is on its way to that Mac already.", "Wait for it, or stop it: x in the model list.")
        self._asked_by = asked_by
        meter = Meter(first, self._publish)
        self._running = self._tasks.spawn("A transfer", self._run(meter, work), partial(_end_by_defect, meter))

    async def _run(self, meter: Meter, work: Work) -> None:
        meter.publish(meter.now)
        try:
            await work(meter)
        except asyncio.CancelledError:
            meter.end("stopped")
            raise
        except MaclusterError as error:
            self._failed_at = monotonic()
            meter.end("failed", error)
            self._journal.warn(f"{meter.now.model} did not arrive: {error.what}")
        except OSError as error:
            self._failed_at = monotonic()
            meter.end(
                "failed", TransferError(f"The disk refuses it: {error.strerror}.", "Make room there, then try again.")
            )
        else:
            self._journal.info(f"What was wanted of {meter.now.model} is on this Mac's disk.")
            await self._inventory.look()
            meter.end("done")
        finally:
            self._bus.publish(ModelsChanged())  # what has come of one that did not end is listed too

    def _note(self, transfer: Transfer) -> None:
        if transfer.bytes_per_s > 0:
            self.rates[transfer.mac] = transfer.bytes_per_s
        self._bus.publish(transfer)

    def _publish(self, transfer: Transfer) -> None:
        self._note(transfer)
        if self._asked_by:
            self._tasks.spawn("The report of a copy", self._report_to_asker(self._asked_by, transfer))

    async def _report_to_asker(self, device_id: str, transfer: Transfer) -> None:
        await self._links.send(device_id, CopyProgress(transfer=transfer))

    async def _download(self, wanted: DownloadRequest, meter: Meter) -> None:
        if wanted.split:
            meter.is_of(await self._copying.begin(wanted.repo, wanted.revision, meter.count))
            return
        order = FetchOrder(repo=wanted.repo, revision=wanted.revision, cache=str(self._hub))
        async for fetched in download(order, wanted.repo):
            meter.count("running", fetched.done, fetched.total)

    async def _copy(
        self, sources: Sequence[str], model: HeldModel, parts: Sequence[Part], pace: CopyPace, meter: Meter
    ) -> None:
        await self._copying.fetch(sources, model, meter.count, partial(self._warn, model.name), parts, pace)

    def _warn(self, model: str, source: str, what: str) -> None:
        name = next((peer.name for peer in self._bus.now.peers if peer.device_id == source), source[:8])
        again = "It is asked for again, of another Mac if one has it."
        self._journal.warn(f"{model}: {what} came damaged from {name}. {again}")


def _end_by_defect(meter: Meter) -> None:
    meter.end("failed", TransferError("A defect of macluster on this Mac ended it.", "The log of its node says where."))


class Meter:
    """Tells how far a transfer is, twice a second at most, and how fast it was lately."""

    def __init__(self, first: Transfer, publish: Callable[[Transfer], None]) -> None:
        self.now, self.publish = first, publish
        self._published_at = 0.0
        self._points: deque[tuple[float, int]] = deque()

    def count(self, state: Stage, done: int, total: int) -> None:
        """So many bytes are there."""
        at = monotonic()
        if state == self.now.state and at - self._published_at < TRANSFER_EVERY_S:
            return
        self._points.append((at, done))
        while at - self._points[0][0] > RATE_S:
            self._points.popleft()
        (since, before), self._published_at = self._points[0], at
        rate = max(0.0, (done - before) / (at - since)) if at > since else 0.0
        self.now = msgspec.structs.replace(self.now, state=state, done=done, total=total, bytes_per_s=rate)
        self.publish(self.now)

    def is_of(self, fingerprint: str) -> None:
        """It turned out which model it is."""
        self.now = msgspec.structs.replace(self.now, fingerprint=fingerprint)

    def end(self, state: Literal["done", "failed", "stopped"], error: MaclusterError | None = None) -> None:
        """Nothing more comes."""
        problem = error.problem if error else None
        done = self.now.total if state == "done" else self.now.done
        self.now = msgspec.structs.replace(self.now, state=state, done=done, bytes_per_s=0.0, problem=problem)
        self.publish(self.now)


def _first(model: HeldModel, source: str, mac: str) -> Transfer:
    return Transfer(model=model.name, fingerprint=model.fingerprint, mac=mac, source=source, state="asking")


def _ask(wanted: CopyRequest, parts: Sequence[Part]) -> CopyAsk:
    pieces: dict[str, list[tuple[int, int]]] = {}
    for part in parts:
        pieces.setdefault(part.file, []).append((part.begin, part.end))
    by_file = {file: tuple(each) for file, each in pieces.items()}
    return CopyAsk(fingerprint=wanted.fingerprint, parts=by_file, bytes_per_s=wanted.bytes_per_s)


def _parts_of(asked: CopyAsk) -> list[Part]:
    return [Part(file=file, begin=begin, end=end) for file, each in asked.parts.items() for begin, end in each]
