"""Choose the cuts of a split among the legal places of the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import add

# bytes by which stage number i with layers [start, stop) exceeds its Mac
Overflow = Callable[[int, int, int], int]
# cost of stage number i with layers [start, stop); None: it is impossible
Cost = Callable[[int, int, int], float | None]

_Best = tuple[float, int, tuple[int, ...]]


def best_cuts(
    wanted: Sequence[int],
    legal: Sequence[int],
    layers: int,
    cost: Cost,
    together: Callable[[float, float], float] = add,
) -> tuple[int, ...] | None:
    """Choose as many cuts out of `legal` (ascending, within 1 to `layers` - 1) as `wanted` has, strictly increasing;
    None if every choice is impossible.

    Minimises the costs of all stages, put `together`, then the distance to the wanted cuts, then takes the lower cuts.
    Exact, by dynamic programming.
    """
    # the best way to end the stages so far at each cut; equal lengths, so tuples compare cut by cut
    ends: dict[int, _Best] = {0: (0, 0, ())}
    for stage, near in enumerate((*wanted, layers)):
        reached: dict[int, _Best] = {}
        for stop in legal if stage < len(wanted) else (layers,):
            ways = [
                (together(before, more), moved + abs(stop - near), (*cuts, stop))
                for start, (before, moved, cuts) in ends.items()
                if start < stop and (more := cost(stage, start, stop)) is not None
            ]
            if ways:
                reached[stop] = min(ways)
        ends = reached
    return ends[layers][2][:-1] if layers in ends else None


def nearest_cuts(ideal: Sequence[int], legal: Sequence[int], layers: int, overflow: Overflow) -> tuple[int, ...]:
    """Keep legal ideal cuts, else choose as many legal ones that leave the fewest bytes without room."""
    if set(ideal) <= set(legal):
        return tuple(ideal)
    found = best_cuts(ideal, legal, layers, overflow)
    assert found is not None
    return found
