"""Assign layers by what is on the Macs' disks, so that nothing has to be fetched before loading. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from math import inf

from core.events import Plan
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
    stops = _stops([s.stop for s in owners], [here.get(s.device_id, frozenset()) for s in owners], cuts, plan.layers)
    if stops is None:
        return None
    edges = dict(zip([s.device_id for s in owners], zip([0, *stops], stops, strict=False), strict=True))

    def span(mac: str) -> LayerSpan:
        start, stop = edges[mac]
        return LayerSpan(start, None if stop == plan.layers and mac == plan.output else stop - 1)

    return tuple(str(span(mac)) for mac in macs if mac in edges)


def _stops(wanted: Sequence[int], here: Sequence[Set[int]], cuts: Collection[int], layers: int) -> list[int] | None:
    best: dict[int, tuple[float, list[int]]] = {0: (0, [])}
    for number, (stop, has) in enumerate(zip(wanted, here, strict=True)):
        ends = [layers] if number == len(wanted) - 1 else sorted(cut for cut in cuts if 0 < cut < layers)
        found: dict[int, tuple[float, list[int]]] = {}
        for begin, (moved, stops) in best.items():
            for end in ends:
                if end > begin and has >= set(range(begin, end)):
                    cost = moved + abs(end - stop)
                    if cost < found.get(end, (inf, []))[0]:
                        found[end] = (cost, [*stops, end])
        best = found
    return best[layers][1] if layers in best else None
