"""The effect of a split on every Mac, estimated from the node's last preview. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from core.events import Plan, Stage
from core.requests.plans import PlanPreview, StageDisk
from tui.state.boundaries import cuts_of


class OnDisk(NamedTuple):
    """A Mac's layers on its disk."""

    layers: int  # number of layers already there
    missing_bytes: int  # to download before loading
    fetch_s: float | None  # seconds, None if unknown


class Share(NamedTuple):
    """One Mac's part of a split."""

    peer: str
    layers: int
    weight_bytes: int
    kv_bytes: int
    budget_bytes: int
    token_s: float | None  # compute time per token, None if unknown
    fixed_bytes: int = 0  # for a step and the tokenizer
    disk: OnDisk | None = None  # None if the Mac has not reported it

    @property
    def free_bytes(self) -> int:
        return self.budget_bytes - self.weight_bytes - self.kv_bytes - self.fixed_bytes


class Effect(NamedTuple):
    """The effect of a split on every Mac."""

    shares: tuple[Share, ...]  # in layer order
    hops_s: float | None
    is_exact: bool  # the node planned exactly these boundaries

    @property
    def compute_s(self) -> float | None:
        times = [s.token_s for s in self.shares]
        return sum(t for t in times if t is not None) if None not in times else None

    @property
    def tokens_per_s(self) -> float | None:
        if self.compute_s is None or self.hops_s is None or self.compute_s + self.hops_s <= 0:
            return None
        return 1 / (self.compute_s + self.hops_s)

    @property
    def fits(self) -> bool:
        return all(s.free_bytes >= 0 for s in self.shares)


def split_of(preview: PlanPreview) -> Plan | None:
    return preview.plan or preview.draft


def effect(known: PlanPreview, cuts: Sequence[int]) -> Effect | None:
    """Estimate the effect of `cuts` from a preview of the same Macs in the same order; None without one.

    A layer that moves or is downloaded counts as large as the largest one, with its share of the caches and of its
    Mac's time.
    """
    plan = split_of(known)
    if plan is None or len(plan.stages) != len(cuts) + 1:
        return None
    parts = [range(*edge) for edge in pairwise((0, *cuts, plan.layers))]
    disks = {stage.device_id: disk for stage, disk in zip(plan.stages, known.disks, strict=False)}
    shares = tuple(
        _share(known, plan, owner, len(part))._replace(
            disk=_on_disk(disks.get(owner.device_id), part, known.layer_bytes)
        )
        for owner, part in zip(plan.owners, parts, strict=True)
    )
    hops_s = sum(known.forecast.hops_s) if known.forecast else None
    return Effect(shares, hops_s, tuple(cuts) == cuts_of(plan))


def _share(known: PlanPreview, plan: Plan, stage: Stage, layers: int) -> Share:
    before = stage.stop - stage.start
    more, kv_bytes = layers - before, known.kv_bytes / plan.layers
    token_s = known.forecast.stages_s[plan.stages.index(stage)] if known.forecast else None
    return Share(
        peer=stage.peer,
        layers=layers,
        weight_bytes=max(0, stage.weight_bytes + more * known.layer_bytes),
        kv_bytes=max(0, stage.kv_bytes + round(more * kv_bytes)),
        budget_bytes=stage.budget_bytes,
        token_s=None if token_s is None else token_s * layers / before,
        fixed_bytes=stage.step_bytes + stage.tokenizer_bytes,
    )


def _on_disk(disk: StageDisk | None, part: range, layer_bytes: int) -> OnDisk | None:
    if disk is None or disk.layers is None:
        return None
    there = sum(max(0, min(stop, part.stop) - max(start, part.start)) for start, stop in disk.layers)
    missing = (len(part) - there) * layer_bytes
    return OnDisk(there, missing, missing / disk.bytes_per_s if disk.bytes_per_s else None)
