"""The current transfer to this Mac's disk: runs, pauses and resumes it, with a rate limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from time import monotonic
from typing import Final, Literal

import msgspec

from core.errors import Busy, MaclusterError, TransferError
from core.events import ModelsChanged, Transfer
from core.node.base.context import NodeContext
from core.node.disks.model_inventory import ModelInventory
from core.node.disks.transfer_progress import EndState, QueuedTransfer, TransferProgress
from core.requests.disks import TransferChange
from core.settings import Home
from core.trust.file_formats import JsonFile

REST_S: Final = 2.0

_FILE: Final = JsonFile[QueuedTransfer](Home.paused, QueuedTransfer)

# runs or resumes a transfer
Work = Callable[[TransferProgress], Awaitable[None]]


class CurrentTransfer:
    """Runs one transfer by `work`; `publish` gets its progress and the requesting Mac.

    A paused transfer has no task. Its blocks stay on the disk, and a file lets a later node resume it. A new transfer
    replaces it.
    """

    def __init__(
        self, node: NodeContext, inventory: ModelInventory, work: Work, publish: Callable[[Transfer, str], None]
    ) -> None:
        self._inventory, self._work, self._publish, self._paused = inventory, work, publish, node.home.paused
        self._device_id, self._bus, self._journal, self._tasks = node.own_id, node.bus, node.journal, node.tasks
        self._now: TransferProgress | None = None  # the running or paused one
        self._task: asyncio.Task[None] | None = None
        self._then: Literal["stop", "pause", "resume"] = "stop"  # action after the task is cancelled
        self._failed_at = -inf
        self._is_held = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Prevent transfers meanwhile. Raises Busy if one runs or is paused."""
        if self._now or self._is_held:
            raise Busy("A model is being transferred to this Mac.", "Wait for it, or `macluster transfers stop`.")
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False

    def failed_just_now(self) -> bool:
        return monotonic() < self._failed_at + REST_S

    def is_for(self, asker: str, fingerprint: str) -> bool:
        now = self._now
        return now is not None and (now.queued.asked_by, now.now.fingerprint) == (asker, fingerprint)

    def restore(self) -> None:
        """Restore a transfer paused in the last node; ignores a damaged or newer file, or one that others can read."""
        if found := _FILE.try_to_read(self._paused):
            self._show(found, msgspec.structs.replace(found.first, mac=self._device_id))

    def begin(self, transfer: QueuedTransfer) -> None:
        """Start a transfer. Raises Busy if another one runs."""
        if self._is_held:
            raise Busy("That Mac is freeing disk space.", "Try again in a moment.")
        if not self._is_idle:
            raise Busy("That Mac is already receiving a model.", "Wait for it, or stop it: x in the model list.")
        if self._now:
            self._end("stopped")
        self._start(transfer, transfer.first)

    def change(self, what: TransferChange, bytes_per_s: int) -> None:
        if self._now is None:
            return
        match what:
            case "resume" if self._is_idle:
                self._resume(self._now)
            case "resume" if self._then == "pause":
                self._then = "resume"
            case "resume":
                return
            case "limit":
                self._now.limited(bytes_per_s)
                if self._is_idle:
                    self._keep_paused(self._now)
            case "stop" if self._is_idle:
                self._end("stopped")
            case "stop" | "pause" if self._task:
                self._then = what
                self._task.cancel()

    async def close(self) -> None:
        """Stop a running transfer; a paused one stays paused for the next node."""
        if not self._is_idle:
            self.change("stop", 0)
        await self.ended()

    async def ended(self) -> None:
        if self._task:
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def _is_idle(self) -> bool:
        return self._task is None or self._task.done()

    def _start(self, transfer: QueuedTransfer, first: Transfer) -> None:
        progress = self._show(transfer, first)
        self._then = "stop"
        self._forget_paused()
        self._task = self._tasks.spawn("A transfer", self._run(progress), self._end_by_defect)
        self._task.add_done_callback(self._settle)

    def _resume(self, now: TransferProgress) -> None:
        self._start(now.queued, msgspec.structs.replace(now.now, state="asking"))

    def _show(self, transfer: QueuedTransfer, first: Transfer) -> TransferProgress:
        self._now = progress = TransferProgress(msgspec.structs.replace(transfer, first=first), self._publish)
        progress.publish()
        return progress

    async def _run(self, progress: TransferProgress) -> None:
        try:
            await self._work(progress)
        except MaclusterError as error:
            self._fail(error)
            self._journal.warn(f"Transfer of {progress.now.model} failed: {error.what}")
        except OSError as error:
            self._fail(TransferError(f"Writing failed: {error.strerror}.", "Free some space there, then try again."))
        else:
            self._journal.info(f"Copied this Mac's share of {progress.now.model}.")
            await self._inventory.look()
            self._end("done")

    def _settle(self, task: asyncio.Task[None]) -> None:
        """Called when the task is done; it may have been cancelled before it began."""
        if task.cancelled() and self._now:
            if self._then == "resume":
                self._resume(self._now)
            else:
                self._end("paused" if self._then == "pause" else "stopped")
        self._bus.publish(ModelsChanged())  # a partial copy is listed too

    def _fail(self, error: MaclusterError) -> None:
        self._failed_at = monotonic()
        self._end("failed", error)

    def _end_by_defect(self) -> None:
        what = "An internal error of macluster on this Mac ended the transfer."
        self._end("failed", TransferError(what, "See the log of its node."))

    def _end(self, state: EndState, error: MaclusterError | None = None) -> None:
        if now := self._now:
            now.end(state, error)
            if state == "paused":
                self._keep_paused(now)
                return
        self._now = None
        self._forget_paused()

    def _keep_paused(self, now: TransferProgress) -> None:
        kept = msgspec.structs.replace(now.queued, first=now.now)
        _FILE.try_to_write(self._paused, kept)  # on a full disk the pause is lost when this node ends

    def _forget_paused(self) -> None:
        with suppress(OSError):
            _FILE.remove(self._paused)
