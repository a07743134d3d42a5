"""Number of layers per Mac: largest remainder over memory weights."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate, pairwise

from core.errors import BadBudget, NoPeers, TooManyPeers


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
