"""Assign layers by what is on the Macs' disks, so that nothing has to be fetched before loading. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from itertools import pairwise

from core.events import Plan
from core.plan.nearest_cuts import best_cuts
from core.plan.topology import LayerSpan, has_ranks


def spans_on_disks(
    plan: Plan, here: Mapping[str, Set[int]], cuts: Collection[int], macs: Sequence[str]
) -> tuple[str, ...] | None:
    """Layer spans for the `macs` with a stage in `plan`, from layers on their disks (`here`, by device id), cut at
    `cuts` as near to the plan's boundaries as possible. None if the disks don't cover the model.
    """
    if has_ranks(plan):
        return None
    owners = plan.owners
    legal = sorted(cut for cut in cuts if 0 < cut < plan.layers)

    def is_here(stage: int, start: int, stop: int) -> int | None:
        return 0 if here.get(owners[stage].device_id, frozenset()) >= set(range(start, stop)) else None

    found = best_cuts([stage.stop for stage in owners[:-1]], legal, plan.layers, is_here)
    if found is None:
        return None
    edges = dict(zip([s.device_id for s in owners], pairwise((0, *found, plan.layers)), strict=True))

    def span(mac: str) -> LayerSpan:
        start, stop = edges[mac]
        return LayerSpan(start, None if stop == plan.layers and mac == plan.output else stop - 1)

    return tuple(str(span(mac)) for mac in macs if mac in edges)
