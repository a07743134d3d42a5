"""Move the cuts of an ideal split to legal places of the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

# bytes by which stage number i with layers [start, stop) exceeds its Mac
Overflow = Callable[[int, int, int], int]

_Best = tuple[int, int, tuple[int, ...]]


def nearest_cuts(ideal: Sequence[int], legal: Sequence[int], layers: int, overflow: Overflow) -> tuple[int, ...]:
    """Choose as many cuts out of `legal` (ascending, within 1 to `layers` - 1) as `ideal` has, strictly increasing.

    Keeps legal ideal cuts. Otherwise minimises the bytes that don't fit, then the distance to the ideal cuts, then
    takes the lower cuts. Exact, by dynamic programming. Needs at least as many legal cuts as ideal ones.
    """
    if set(ideal) <= set(legal):
        return tuple(ideal)
    # ends[c]: the best way to end the stages so far with a cut at c; equal lengths, so tuples compare cut by cut
    ends: dict[int, _Best] = {0: (0, 0, ())}
    for stage, wanted in enumerate(ideal):
        ends = {
            cut: min(_extended(best, cut, abs(cut - wanted), overflow(stage, start, cut)) for start, best in before)
            for cut in legal
            if (before := [(start, best) for start, best in ends.items() if start < cut])
        }
    last = len(ideal)
    return min((over + overflow(last, start, layers), moved, cuts) for start, (over, moved, cuts) in ends.items())[2]


def _extended(best: _Best, cut: int, distance: int, over: int) -> _Best:
    return best[0] + over, best[1] + distance, (*best[2], cut)
