"""State of the split editor: the boundaries, the selected one, and undo. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

import msgspec

from core.events import Peer, Plan, Stage, Value
from core.requests.plans import LoadRequest

_change = msgspec.structs.replace
_SHARED = "Every Mac needs at least one layer."


class Boundaries(Value, frozen=True, kw_only=True):
    """The split that is being edited."""

    layers: int
    cuts: tuple[int, ...]  # first layer of each part but the first, ascending
    legal: tuple[int, ...] | None = None  # all possible cuts, None if unknown
    chosen: int = 0  # the boundary that moves
    past: tuple[tuple[int, ...], ...] = ()  # earlier cuts, last ones last
    remark: str = ""  # notice about the last step

    @property
    def parts(self) -> tuple[range, ...]:
        return tuple(range(*edges) for edges in pairwise((0, *self.cuts, self.layers)))


def cuts_of(plan: Plan) -> tuple[int, ...]:
    return tuple(stage.start for stage in plan.owners[1:])


def divided_as(sizes: Plan, order: Plan) -> tuple[int, ...]:
    """The boundaries that give the Macs of `order` as many layers as they have in `sizes`."""
    counts = {stage.device_id: stage.stop - stage.start for stage in sizes.stages}
    return tuple(accumulate(counts[owner.device_id] for owner in order.owners[:-1]))


def moved(now: Boundaries, by: int) -> Boundaries:
    """Move the chosen boundary by `by` layers; it jumps over boundaries and illegal cuts, or stops before them."""
    if not now.cuts:
        return now
    cut = now.cuts[now.chosen]
    low, high = (now.parts[now.chosen].start + 1, now.parts[now.chosen + 1].stop - 1)
    wanted = min(high, max(low, cut + by))
    if wanted == cut:
        return _change(now, remark=_SHARED)
    places = range(low, high + 1) if now.legal is None else [layer for layer in now.legal if low <= layer <= high]
    found = _landing(places, cut, wanted)
    if found == cut:
        return _change(now, remark="The model can't be cut any further in that direction.")
    how = "jumped to" if (found > wanted) == (wanted > cut) else "stopped at"
    remark = "" if found == wanted else f"The model can't be cut before layer {wanted}: {how} {found}."
    return _taken(now, (*now.cuts[: now.chosen], found, *now.cuts[now.chosen + 1 :]), remark)


def chosen_next(now: Boundaries) -> Boundaries:
    return _change(now, chosen=(now.chosen + 1) % max(1, len(now.cuts)), remark="")


def chosen_near(now: Boundaries, layer: int) -> Boundaries:
    nearest = min(range(len(now.cuts)), key=lambda i: abs(now.cuts[i] - layer), default=0)
    return _change(now, chosen=nearest, remark="")


def replaced(now: Boundaries, cuts: tuple[int, ...], remark: str) -> Boundaries:
    return _change(now, remark=remark) if cuts == now.cuts else _taken(now, cuts, remark)


def undone(now: Boundaries) -> Boundaries:
    if not now.past:
        return _change(now, remark="There is nothing to undo.")
    return _change(now, cuts=now.past[-1], past=now.past[:-1], remark="")


def options_of(plan: Plan, peers: Iterable[Peer]) -> LoadRequest:
    """The options `plan` was loaded with, except who has which layers; other `peers` get none."""
    owners, how = {part.device_id for part in plan.parts}, plan.parallelism
    return LoadRequest(
        model=plan.model,
        context=plan.context,
        kv_bits=plan.kv_bits,  # type: ignore[arg-type]
        rows=plan.rows,
        wire=plan.wire,
        draft=plan.draft or None,
        prefill=plan.prefill.stage.device_id if plan.prefill else "off",
        # an automatic choice is made again
        topology=plan.topology if how is None or how.choice == how.strategy == "pp" else None,
        parallelism=how.choice if how else None,
        rdma=how is not None and how.group == "rdma",
        without=tuple(p.device_id for p in peers if p.state == "connected" and p.device_id not in owners),
    )


def spans(plan: Plan, cuts: Sequence[int]) -> tuple[str, ...]:
    """Layers of each Mac of `plan` divided by `cuts`, as in `PlanRequest`: the head first, then by budget."""
    edges = pairwise((0, *cuts, plan.layers))
    parts = {owner.device_id: range(*edge) for owner, edge in zip(plan.owners, edges, strict=True)}
    others = sorted(plan.stages[1:], key=lambda s: (-s.budget_bytes, s.peer, s.device_id))
    return tuple(_span(plan, stage, parts[stage.device_id]) for stage in (plan.head, *others))


def _span(plan: Plan, stage: Stage, part: range) -> str:
    # a private head also has the output but not the last layers; the rest of the ring decides
    to_the_end = stage.device_id == plan.output and part.stop == plan.layers
    return f"{part.start}:{'output' if to_the_end else part.stop - 1}"


def _landing(places: Sequence[int], cut: int, wanted: int) -> int:
    """The first of `places` from `wanted` on, away from `cut`; else the last one before it; else `cut`."""
    if wanted > cut:
        at = bisect_left(places, wanted)
        beyond, before = places[at:], [p for p in places[:at] if p > cut]
        return beyond[0] if beyond else max(before, default=cut)
    at = bisect_left(places, wanted + 1)
    beyond, before = places[:at], [p for p in places[at:] if p < cut]
    return beyond[-1] if beyond else min(before, default=cut)


def _taken(now: Boundaries, cuts: tuple[int, ...], remark: str) -> Boundaries:
    return _change(now, cuts=cuts, past=(*now.past, now.cuts), remark=remark)
