"""How long work takes by its amount, from what was measured: a few points, and straight lines between them.

Every kind of work is measured in what it costs whatever the model: a token in bytes of weights read, a chunk of a
prompt in such bytes times its tokens, a hop in bytes of its frame. So a point of one model says something about
another, as long as their sizes are not too far apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median_low
from typing import Final, Literal, NamedTuple

Kind = Literal["token", "prompt", "load", "hop", "reduce", "lead", "join", "plan"]

MOST_POINTS: Final = 8
# amounts that differ by less are one point
ALIKE: Final = 1.25
# measurements of one point that count: the median of so many, the lower one of two, is not moved by one that something
# else held up
MOST_TIMES: Final = 3
# How many times larger or smaller than all that was measured an amount may be. A short chunk of a prompt takes not much
# less than a longer one: in proportion it would make a long prompt seem slow.
REACH: Final[Mapping[Kind, float]] = {
    "token": 8,
    "prompt": 4,
    "load": 8,
    "hop": 128,
    "reduce": 8,
    "lead": 1,
    "join": 1,
    "plan": 2,
}


class Point(NamedTuple):
    """Work of `amount` took so many `seconds`, the median of the last few `times` that were measured."""

    amount: float
    seconds: float
    times: tuple[float, ...] = ()


# by amount, ascending
Curve = tuple[Point, ...]
# by `curve_name`
Curves = Mapping[str, Curve]


def curve_name(kind: Kind, *macs: str) -> str:
    """What a curve is kept under. Of the Macs' device ids, a hop has two, from and to; a reduce has the head's,
    and how many add up.

    "token": bytes of weights that a Mac reads for a token. "prompt": such bytes times the tokens of a chunk. "load":
    bytes of weights. "hop": bytes of a frame. "reduce": bytes that are added up at a time. Once each: "lead", what a
    head adds to a token beside its layers, such as to choose it; "join", what it adds to a load beside reading the
    weights, such as to link and to prove the ring. "plan", of what `core.plan.forecast.shape_of` gives: tokens at a
    time that went through all of it.
    """
    return " ".join((kind, *macs))


def is_whole(name: str) -> bool:
    """Whether the curve of that name is one of a plan as a whole."""
    return name.partition(" ")[0] == "plan"


def point_of(amount: float, times: Sequence[float]) -> Point:
    """The point at `amount` of which `times`, one at least, are the last that were measured."""
    return Point(amount, median_low(times), tuple(times))


def learned(curve: Curve, amount: float, seconds: float, *, anew: bool = False) -> Curve:
    """`curve` after a measurement of an `amount` above zero, which joins in proportion a point of much the same amount,
    or takes its place where that counts no more; of too many points the one nearest to its neighbour goes.
    """
    alike = [p for p in curve if amount / ALIKE <= p.amount <= amount * ALIKE]
    near = min(alike, key=lambda p: abs(p.amount - amount), default=None)
    if near is not None:
        before = () if anew else near.times or (near.seconds,)
        moved = point_of(near.amount, (*before, seconds * near.amount / amount)[-MOST_TIMES:])
        return tuple(sorted(moved if p is near else p for p in curve))
    points = sorted((*curve, point_of(amount, (seconds,))))
    if len(points) > MOST_POINTS:
        _, crowded = min((after.amount / before.amount, before) for before, after in pairwise(points))
        points.remove(crowded)
    return tuple(points)


def seconds_for(curve: Curve, amount: float, reach: float) -> float | None:
    """What `amount` would take; None where it is not within `reach` of what was measured.

    Straight between two points, also where more took less time, as small chunks do on a GPU; beyond all of them on
    along the line from the first to the last, for between two that lie close together noise is steep. In proportion
    where there is one, or where that line does not rise.
    """
    if not curve or not curve[0].amount / reach <= amount <= curve[-1].amount * reach:
        return None
    first, last = curve[0], curve[-1]
    for below, above in pairwise(curve):
        if below.amount <= amount <= above.amount:
            return _straight(below, above, amount)
    near = first if amount <= first.amount else last
    straight = _straight(first, last, amount) if first is not last else 0.0
    return straight if straight > 0 and last.seconds > first.seconds else near.seconds * amount / near.amount


def _straight(one: Point, other: Point, amount: float) -> float:
    """On the line through two points of different amounts."""
    share = (amount - one.amount) / (other.amount - one.amount)
    return one.seconds + share * (other.seconds - one.seconds)
