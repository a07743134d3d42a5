"""Chooses the prefill Mac: the requested one, or one that measurements show to be faster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec

from core.errors import ModelError, ModelNotFound, PlanError, UsageError
from core.events import Peer, Plan, Stage
from core.models.files.layout import Layout
from core.models.slicing.split_profile import SplitProfile
from core.node.disks.model_inventory import ModelInventory
from core.node.peers.peer_table import PeerTable
from core.plan.forecast import Estimate, MacSpeeds, forecast, plan_work_of, reads_of
from core.plan.hop_bytes import hop_bytes
from core.plan.prefill import ReadTimes, beside_s, quickest_reader, reader_of, with_prefill
from core.plan.stage_sizes import StageSizes
from core.requests.plans import Forecast, PlanPreview, PlanRequest

R = TypeVar("R", bound=PlanRequest)


class PrefillChoice:
    """Chooses the prefill Mac for a plan."""

    def __init__(
        self, inventory: ModelInventory, peers: PeerTable, speeds: Callable[[Sequence[Peer]], MacSpeeds]
    ) -> None:
        self._inventory, self._peers, self._speeds = inventory, peers, speeds

    def added(self, plan: Plan, request: PlanRequest, profile: SplitProfile | None, layout: Layout) -> Plan:
        """`plan` with the requested prefill Mac. Raises PlanError, ModelError, UsageError."""
        if request.prefill == "off":
            return plan
        stage = self._stage(plan, self._reader(request, plan), profile, layout)
        return with_prefill(plan, stage, self._readers(plan, stage, profile, layout))

    async def decided(
        self,
        request: R,
        fingerprint: str,
        profile: SplitProfile | None,
        layout: Layout,
        preview: Callable[[PlanRequest], Awaitable[PlanPreview]],
    ) -> R:
        """`request` with "auto" replaced by a Mac or "off"; `preview` plans without a prefill Mac."""
        off = msgspec.structs.replace(request, prefill="off")
        everybody = await preview(off)
        whole = self._inventory.holdings(fingerprint).whole
        members = everybody.plan.stages[1:] if everybody.plan and not request.layers else ()
        tried: list[tuple[str, ReadTimes, float | None]] = []
        for mac in [stage.device_id for stage in members if stage.device_id in whole]:
            others = await preview(msgspec.structs.replace(off, without=(*off.without, mac)))
            with suppress(PlanError, ModelError, UsageError):
                if plan := others.plan:
                    reader = self._reader(msgspec.structs.replace(off, prefill=mac), plan)
                    stage = self._stage(plan, reader, profile, layout)
                    tried.append((mac, self._readers(plan, stage, profile, layout), _token_s(others.forecast)))
        found = quickest_reader(tried, _prompt(everybody.forecast), _token_s(everybody.forecast))
        return msgspec.structs.replace(request, prefill=found or "off")

    def _reader(self, request: PlanRequest, plan: Plan) -> Peer:
        reader = next((peer for peer in self._peers.linked() if peer.device_id == request.prefill), None)
        if reader is None:
            raise UsageError("The prefill Mac is not connected.", "`macluster peers` lists connected Macs.")
        holdings = self._inventory.holdings(plan.fingerprint)
        if reader.device_id in holdings.reported and reader.device_id not in holdings.whole:
            what = f"{reader.name} can't prefill: it does not have all of {plan.model} on its disk."
            raise ModelNotFound(what, "Copy it there first with `macluster copy`.")
        return reader

    def _stage(self, plan: Plan, reader: Peer, profile: SplitProfile | None, layout: Layout) -> Stage:
        sizes = StageSizes(layout, profile, plan.context, plan.kv_bits, plan.chunk, plan.rows)
        return reader_of(plan, sizes, reader, profile)

    def _readers(self, plan: Plan, stage: Stage, profile: SplitProfile | None, layout: Layout) -> ReadTimes:
        speeds = self._speeds(self._peers.linked())
        told = forecast(plan_work_of(plan, layout, hop_bytes(plan, profile), layout.total_bytes), speeds)
        return ReadTimes(_prompt(told), beside_s(plan, stage, sum(reads_of(plan, layout)), speeds))


def _prompt(told: Forecast | None) -> Estimate | None:
    return None if told is None or told.prompt_s is None else Estimate(told.prompt_s, told.measured)


def _token_s(told: Forecast | None) -> float | None:
    return told.token_s if told else None
