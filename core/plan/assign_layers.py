"""Assign layers to Macs: as the user wrote them, in proportion to budgets, or by speed within them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import NamedTuple

from core.errors import BadBudget, IllegalCut, NoPeers, PlanError, TooManyPeers, UsageError
from core.events import BalanceChoice, Peer, Plan, Topology
from core.models.slicing.split_profile import SplitProfile
from core.plan import topology as topologies
from core.plan.balance_by_speed import StageOwners, StageSeconds, balanced
from core.plan.nearest_cuts import best_cuts, nearest_cuts
from core.plan.notes import before_which, where_cut, why_not_cut
from core.plan.stage_sizes import StageSizes
from core.plan.topology import Arrangement, LayerSpan, Route, has_ranks, in_ring, parse_span, route


class LayerSplit(NamedTuple):
    """A route over `macs`; `ideal` and `left_out` as in `core.plan.notes.notes_of`."""

    macs: Sequence[Peer]
    route: Route
    ideal: Sequence[int]
    left_out: Sequence[str] = ()
    balance: str = ""  # sentence on how layers were divided, "" if not asked for


def split_as_given(
    model: str,
    spans: Sequence[str],
    peers: Sequence[Peer],
    topology: Topology | None,
    layers: int,
    profile: SplitProfile | None,
) -> LayerSplit:
    """The split of `spans`, one per peer, the head first. Raises UsageError, IllegalCut."""
    if len(spans) > len(peers):
        there = "1 is" if len(peers) == 1 else f"{len(peers)} are"
        what = f"Layers are assigned to {len(spans)} Macs, but only {there} available."
        raise UsageError(what, "Pair another Mac, or assign its layers to the available ones.")
    head, *others = (parse_span(span) for span in spans)
    found = route(head, others, layers)
    if topology not in (None, found.topology):
        what = f"The layers {','.join(spans)} make the topology {found.topology}, not {topology}."
        raise UsageError(what, "Leave out the topology, or assign the layers again.")
    cuts = sorted(part.start for _, part in found.ring)[1:]
    for cut in cuts:
        if profile and cut not in profile.cuts:
            raise _illegal(model, cut, profile)
    return LayerSplit(peers, found, cuts)


def split_by_budget(
    model: str,
    sizes: StageSizes,
    peers: Sequence[Peer],
    topology: Topology | None,
    profile: SplitProfile | None,
    balance: BalanceChoice = "memory",
    stage_s: StageSeconds = lambda *_: None,
) -> LayerSplit:
    """Split over `peers`, the head first, by budget, or within budgets by the time per token (`balance`).

    Ranks get all layers; in a reverse ring the head's come last. Without a `topology`: private, or single on one Mac.
    Raises the errors of `split_layers`, and PlanError if a topology of several Macs was asked for on one.
    """
    row = topologies.TOPOLOGIES[topology or topologies.DEFAULT_TOPOLOGY]
    kept = _kept(peers, row, profile)
    if len(kept) == 1 and topology and row.several:
        raise _alone(model, topology, profile)
    layers = sizes.layout.layers
    if row.ranks:
        ranks = in_ring([range(layers)] * len(kept), 0)
        assert ranks is not None
        return LayerSplit(kept, ranks, [0] * (len(kept) - 1))
    owners = [*kept[1:], *kept[:1]] if row.head_is_last else kept
    output = row.output(len(kept))
    ideal = [part.start for part in split_layers(layers, [sizes.layer_budget(peer) for peer in owners])[1:]]
    overflow = sizes.overflow(owners, output)
    by_memory = nearest_cuts(ideal, profile.cuts, layers, overflow) if profile else ideal
    legal = profile.cuts if profile else range(1, layers)
    cuts, why = balanced(balance, by_memory, legal, StageOwners(owners, output, layers, stage_s), overflow)
    ideal = [cut if cut != kept else wanted for cut, kept, wanted in zip(cuts, by_memory, ideal, strict=True)]
    parts = [range(*edges) for edges in pairwise((0, *cuts, layers))]
    found = in_ring([parts[owners.index(peer)] for peer in kept], kept.index(owners[output]))
    assert found is not None
    left_out = [peer.name for peer in peers if peer not in kept] if row.several else []
    return LayerSplit(kept, found, ideal, left_out, why)


def _kept(peers: Sequence[Peer], row: Arrangement, profile: SplitProfile | None) -> Sequence[Peer]:
    """The head and as many others as there are cuts, the largest budgets first, in the order of `peers`."""
    if not row.several:
        return peers[:1]
    most = len(profile.cuts) if profile and not row.ranks else len(peers)
    largest = sorted(range(1, len(peers)), key=lambda i: -peers[i].budget_bytes)[:most]
    return [peer for i, peer in enumerate(peers) if i == 0 or i in largest]


def _alone(model: str, topology: Topology | None, profile: SplitProfile | None) -> PlanError:
    what = f"{model} cannot run in the topology {topology}"
    if profile and not profile.cuts:
        return PlanError(f"{what}: {where_cut(profile)}", f"Choose the topology {topologies.LONE_MAC_TOPOLOGY}.")
    return PlanError(
        f"{what}: it takes a second Mac.", f"Pair another Mac, or choose the topology {topologies.LONE_MAC_TOPOLOGY}."
    )


def _illegal(model: str, cut: int, profile: SplitProfile) -> IllegalCut:
    what = f"{model} cannot be cut before layer {cut}"
    if not profile.cuts:
        return IllegalCut(f"{what}: {where_cut(profile)}", "Give all layers to this Mac: 0:output.")
    return IllegalCut(f"{what}: {why_not_cut(cut, profile)}.", f"It can be cut {before_which(profile.cuts)} only.")


def split_layers(layers: int, weights: Sequence[int]) -> list[range]:
    """Contiguous ranges covering 0..`layers`, one per weight, in order, in proportion to `weights` (positive integers).

    Hamilton's method with at least one layer each: every stage first gets max(1, floor(ideal)), then the largest
    fractional parts get one more. Excess layers are taken one by one from the largest stages. Ties go to the lower
    index. Exact.

    Raises NoPeers, TooManyPeers (more weights than layers), BadBudget (a weight below one).
    """
    if not weights:
        raise NoPeers("There is no Mac to split the model over.")
    if any(w <= 0 for w in weights):
        raise BadBudget(f"A memory budget of {min(weights)} cannot hold layers.")
    if len(weights) > layers:
        raise TooManyPeers(f"{len(weights)} Macs cannot share {layers} layers.")
    ideals = [Fraction(layers * w, sum(weights)) for w in weights]
    counts = [max(1, int(ideal)) for ideal in ideals]
    _give(counts, ideals, layers - sum(counts))
    _take(counts, sum(counts) - layers)
    return [range(*edges) for edges in pairwise(accumulate(counts, initial=0))]


def _give(counts: list[int], ideals: Sequence[Fraction], spare: int) -> None:
    order = sorted(range(len(counts)), key=lambda i: (-(ideals[i] - int(ideals[i])), i))
    for step in range(max(0, spare)):
        counts[order[step % len(order)]] += 1


def _take(counts: list[int], excess: int) -> None:
    order = sorted(range(len(counts)), key=lambda i: (-counts[i], i))
    while excess > 0:
        for i in order:
            if excess > 0 and counts[i] > 1:
                counts[i] -= 1
                excess -= 1


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
