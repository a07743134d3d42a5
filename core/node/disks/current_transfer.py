"""What is on its way to this Mac's disk: one transfer at a time, which may pause and have a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import inf
from pathlib import Path
from time import monotonic
from typing import Final, Literal

import msgspec

from core.errors import Busy, MaclusterError, TransferError
from core.events import ModelsChanged, Transfer
from core.models.files.byte_rate_limit import ByteRateLimit
from core.node.base.bus import Bus
from core.node.base.journal import Journal
from core.node.base.tasks import Tasks
from core.node.disks.model_inventory import ModelInventory
from core.node.disks.transfer_meter import Meter
from core.node.disks.wish import QueuedTransfer, forget_paused, keep_paused, read_paused
from core.requests.disks import TransferChange

REST_S: Final = 2.0

Bring = Callable[[QueuedTransfer, Meter, ByteRateLimit], Awaitable[None]]


class CurrentTransfer:
    """`bring` has a wish come, or goes on with it; `publish` gets how far it is, and for which Mac. One that is paused
    is no task: what has come lies on the disk, and it begins again where that ends, also when a later node lets it go
    on, for it is remembered in the file `paused`. It gives way to another one.
    """

    def __init__(
        self,
        bring: Bring,
        publish: Callable[[Transfer, str], None],
        paused: Path,
        inventory: ModelInventory,
        bus: Bus,
        journal: Journal,
        tasks: Tasks,
    ) -> None:
        self._bring, self._publish, self._paused, self._inventory = bring, publish, paused, inventory
        self._bus, self._journal, self._tasks = bus, journal, tasks
        self._wish: QueuedTransfer | None = None
        self._meter: Meter | None = None
        self._pace = ByteRateLimit()
        self._task: asyncio.Task[None] | None = None
        self._then: Literal["stop", "pause", "resume"] = "stop"  # where its task was cancelled
        self._failed_at = -inf
        self._is_held = False

    @property
    def is_under_way(self) -> bool:
        """Whether something comes, or would go on to come."""
        return self._wish is not None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nothing comes to this disk meanwhile. Raises Busy where something is under way."""
        if self._wish or self._is_held:
            raise Busy("A model is on its way to this Mac's disk.", "Wait for it, or `macluster transfers stop`.")
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False

    def rests(self) -> bool:
        """Whether one failed just now."""
        return monotonic() < self._failed_at + REST_S

    def is_for(self, asker: str, fingerprint: str) -> bool:
        """Whether that Mac wanted what is under way."""
        return bool(
            self._wish and self._meter and (self._wish.asked_by, self._meter.now.fingerprint) == (asker, fingerprint)
        )

    def restore(self, device_id: str) -> None:
        """What was paused when the last node of this Mac, which is `device_id`, ended is paused again."""
        if wish := read_paused(self._paused):
            self._wish = wish
            self._pace = ByteRateLimit(wish.first.limit_bytes_per_s)
            self._meter = self._metered(msgspec.structs.replace(wish.first, mac=device_id))

    def begin(self, wish: QueuedTransfer) -> None:
        """Raises Busy where another one runs."""
        if self._is_held:
            raise Busy("Room is being made on that Mac's disk.", "Try again in a moment.")
        if not self._rests:
            raise Busy("A model is on its way to that Mac already.", "Wait for it, or stop it: x in the model list.")
        if self._wish:
            self._end("stopped")
        self._wish, self._pace = wish, ByteRateLimit(wish.first.limit_bytes_per_s)
        self._start(wish.first)

    def change(self, what: TransferChange, bytes_per_s: int) -> None:
        """As a person wants it, here or at the Mac that asked for it; nothing where nothing is under way."""
        if not (self._wish and self._meter):
            return
        match what:
            case "resume" if self._rests:
                self._start(msgspec.structs.replace(self._meter.now, state="asking"))
            case "resume" if self._then == "pause":
                self._then = "resume"
            case "resume":
                return
            case "limit":
                self._pace.change(bytes_per_s)
                self._meter.limited(bytes_per_s)
                if self._rests:
                    self._keep()
            case "stop" if self._rests:
                self._end("stopped")
            case "stop" | "pause" if self._task:
                self._then = what
                self._task.cancel()

    async def close(self) -> None:
        """The node ends; what is paused stays so."""
        if not self._rests:
            self.change("stop", 0)
        if self._task:
            await asyncio.gather(self._task, return_exceptions=True)

    async def ended(self) -> None:
        """When nothing comes any more."""
        if self._task:
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def _rests(self) -> bool:
        return self._task is None or self._task.done()

    def _start(self, first: Transfer) -> None:
        assert self._wish
        meter = self._meter = self._metered(first)
        self._then = "stop"
        forget_paused(self._paused)
        self._task = self._tasks.spawn("A transfer", self._run(meter, self._wish), self._end_by_defect)
        self._task.add_done_callback(self._settle)

    def _metered(self, first: Transfer) -> Meter:
        assert self._wish
        meter = Meter(first, partial(self._publish_for, self._wish.asked_by))
        meter.publish(first)
        return meter

    def _publish_for(self, asked_by: str, transfer: Transfer) -> None:
        self._publish(transfer, asked_by)

    def _keep(self) -> None:
        assert self._wish
        assert self._meter
        keep_paused(self._paused, msgspec.structs.replace(self._wish, first=self._meter.now))

    async def _run(self, meter: Meter, wish: QueuedTransfer) -> None:
        try:
            await self._bring(wish, meter, self._pace)
        except MaclusterError as error:
            self._fail(error)
            self._journal.warn(f"{meter.now.model} did not arrive: {error.what}")
        except OSError as error:
            self._fail(TransferError(f"The disk refuses it: {error.strerror}.", "Make room there, then try again."))
        else:
            self._journal.info(f"What was wanted of {meter.now.model} is on this Mac's disk.")
            await self._inventory.look()
            self._end("done")

    def _settle(self, task: asyncio.Task[None]) -> None:
        """It may have been cancelled before it began."""
        if task.cancelled() and self._meter:
            if self._then == "resume":
                self._start(msgspec.structs.replace(self._meter.now, state="asking"))
            else:
                self._end("paused" if self._then == "pause" else "stopped")
        self._bus.publish(ModelsChanged())  # what has come of one that did not end is listed too

    def _fail(self, error: MaclusterError) -> None:
        self._failed_at = monotonic()
        self._end("failed", error)

    def _end_by_defect(self) -> None:
        self._end(
            "failed", TransferError("A defect of macluster on this Mac ended it.", "The log of its node says where.")
        )

    def _end(self, state: Literal["done", "failed", "stopped", "paused"], error: MaclusterError | None = None) -> None:
        if self._meter:
            self._meter.end(state, error)
        if state == "paused":
            self._keep()
        else:
            self._wish = None
            forget_paused(self._paused)
