"""Layers that a Mac keeps on its disk beside its own, so that it can take them over where a neighbour is lost. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from core.events import Plan
from core.plan.stage_sizes import LayoutBytes
from core.plan.topology import has_ranks

Layers = tuple[int, int]


def with_spare(plan: Plan, layout: LayoutBytes, spare_bytes: int) -> Plan:
    """`plan` with what each of its Macs keeps on its disk; as it is where nothing can be spare."""
    if not spare_bytes or has_ranks(plan) or len(plan.stages) < 2:
        return plan
    owners = plan.owners
    layer_bytes = [layout.stage_bytes(n, n + 1, embed=False, output=False) for n in range(plan.layers)]
    kept = kept_layers([(s.start, s.stop) for s in owners], layer_bytes, spare_bytes, owners.index(plan.head))
    by_mac = {stage.device_id: layers for stage, layers in zip(owners, kept, strict=True)}
    return msgspec.structs.replace(plan, spare=tuple(by_mac[stage.device_id] for stage in plan.stages))


def kept_layers(owners: Sequence[Layers], layer_bytes: Sequence[int], spare_bytes: int, head: int) -> list[Layers]:
    """For each of `owners`, half-open and in the order of their layers, those that it keeps: its own, and up to
    `spare_bytes` of its neighbours', the nearest first. None of the head's, which is the one that cannot be replaced.
    """
    return [_kept(owners, number, layer_bytes, spare_bytes, head) for number in range(len(owners))]


def _kept(owners: Sequence[Layers], number: int, layer_bytes: Sequence[int], left: int, head: int) -> Layers:
    start, stop = first, last = owners[number]
    lowest = owners[number - 1][0] if number and number - 1 != head else start
    highest = owners[number + 1][1] if number + 1 < len(owners) and number + 1 != head else stop
    while True:
        below = first > lowest and layer_bytes[first - 1] <= left
        above = last < highest and layer_bytes[last] <= left
        if above and (not below or last - stop <= start - first):
            left -= layer_bytes[last]
            last += 1
        elif below:
            first -= 1
            left -= layer_bytes[first]
        else:
            return first, last
