"""Model files that the Macs of a plan lack, copied before they load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from core.errors import MaclusterError, Problem
from core.events import Plan, Transfer
from core.models.files.catalog import ModelEntry
from core.models.files.layers_on_disk import layers_text, size_text
from core.models.files.layout import Layout
from core.models.files.parts import Ranges, ranges
from core.node.base.tasks import together
from core.node.disks.hub_comparison import HubComparison
from core.node.disks.model_inventory import ModelInventory
from core.node.disks.transfers import Transfers
from core.node.ring.split_profiles import FileParts, SplitProfiles
from core.plan.topology import has_ranks
from core.requests.disks import CopyRequest, DiskUse
from core.requests.plans import StageDisk


class Lack(NamedTuple):
    """The missing bytes of one Mac's stage: `nbytes` of `layers`, empty if only files besides the layers are missing.
    `parts`: all that it reads; empty for the whole model.
    """

    device_id: str
    peer: str
    layers: Ranges
    nbytes: int
    parts: FileParts


class Undelivered(Exception):
    """A Mac did not get its files."""

    def __init__(self, device_id: str, problem: Problem) -> None:
        super().__init__(device_id, problem)
        self.device_id, self.problem = device_id, problem


class StageFiles:
    """Checks the disks of a plan's Macs, and has missing files copied there."""

    def __init__(
        self, inventory: ModelInventory, profiles: SplitProfiles, transfers: Transfers, comparison: HubComparison
    ) -> None:
        self._inventory, self._profiles, self._transfers = inventory, profiles, transfers
        self._comparison = comparison

    async def lacks(self, plan: Plan, entry: ModelEntry, layout: Layout) -> tuple[Lack, ...]:
        """Files to copy before `plan` can run. Raises ModelNotFound if no linked Mac has a needed layer, and like
        `SplitProfiles.of`.
        """
        macs = self._inventory.lacking(plan)
        if not macs:
            return ()
        missing = self._inventory.holdings(plan.fingerprint).missing(plan)
        parts = ((),) * len(plan.stages) if has_ranks(plan) else await self._profiles.parts(entry, plan)
        return tuple(
            Lack(
                device_id=stage.device_id,
                peer=stage.peer,
                layers=ranges(sorted(layers := missing.get(stage.device_id, frozenset()))),
                nbytes=sum(layout.layer_bytes[layer] for layer in layers),
                parts=wanted,
            )
            for stage, wanted in zip(plan.stages, parts, strict=True)
            if stage.device_id in macs
        )

    def disks(self, plan: Plan) -> list[DiskUse]:
        held, fetched = self._inventory.holdings(plan.fingerprint).held, self._transfers.fetched
        macs = [stage.device_id for stage in plan.stages]
        return [
            DiskUse(mac=mac, fetched_bytes=fetched[mac], disk_bytes=held[mac].disk_bytes if mac in held else 0)
            for mac in macs
        ]

    def on_disks(self, plan: Plan) -> tuple[StageDisk, ...]:
        holdings, rates = self._inventory.holdings(plan.fingerprint), self._transfers.rates
        return tuple(
            StageDisk(layers=holdings.layers_of(stage.device_id), bytes_per_s=rates.get(stage.device_id, 0.0))
            for stage in plan.stages
        )

    async def bring(self, plan: Plan, lacks: Sequence[Lack], show: Callable[[Transfer], None]) -> None:
        """Raises Undelivered."""
        await together(self._bring_one(plan, lack, show) for lack in lacks)

    async def is_compared(self, directory: Path) -> bool:
        return not await self._comparison.is_due(directory)

    async def compare(self, plan: Plan, directory: Path, show: Callable[[int, int], None]) -> None:
        """Raises Undelivered."""
        try:
            await self._comparison.ensure(directory, plan.fingerprint, tell=show)
        except MaclusterError as error:
            raise Undelivered(self._inventory.own_id, error.problem) from error

    async def _bring_one(self, plan: Plan, lack: Lack, show: Callable[[Transfer], None]) -> None:
        wanted = CopyRequest(fingerprint=plan.fingerprint, to=(lack.device_id,), parts=lack.parts)
        try:
            await self._transfers.bring(wanted, show)
        except MaclusterError as error:
            raise Undelivered(lack.device_id, error.problem) from error

    def words(self, lacks: Sequence[Lack]) -> str:
        """ "1.2 GB (layers 4–7) to mbp and 0.3 GB (layer 9) to mini, about 40 s", by the speed of the last copies;
        "" if negligible.
        """
        named = [lack for lack in lacks if lack.layers]
        what = " and ".join(f"{size_text(lack.nbytes)} ({layers_text(lack.layers)}) to {lack.peer}" for lack in named)
        rates = [self._transfers.rates.get(lack.device_id, 0.0) for lack in named]
        if not (named and all(rates)):
            return what
        seconds = max(lack.nbytes / rate for lack, rate in zip(named, rates, strict=True))
        return f"{what}, about " + (f"{max(1, round(seconds))} s" if seconds < 90 else f"{round(seconds / 60)} min")
