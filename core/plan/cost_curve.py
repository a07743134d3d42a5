"""Predict how long work takes from a few measured points, with straight lines between them.

Work is measured in units independent of the model: a token in bytes of weights read, a prompt chunk in such bytes times
its tokens, a hop in bytes of its frame. So one model's measurements also predict another of similar size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median_low
from typing import Final, Literal, NamedTuple

Kind = Literal["token", "prompt", "load", "hop", "reduce", "lead", "join", "plan"]

MOST_POINTS: Final = 8
# amounts that differ by less share a point
ALIKE: Final = 1.25
# a point is the median of up to this many measurements (the lower one of two), so one delayed run doesn't move it
MOST_TIMES: Final = 3
# how far beyond the measured range an amount may be; short chunks take almost as long as longer ones, so in proportion
# they would make a long prompt seem slow
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
    """A measured point."""

    amount: float
    seconds: float  # median of `times`
    times: tuple[float, ...] = ()  # last few measurements


# by amount, ascending
Curve = tuple[Point, ...]
# by `curve_name`
Curves = Mapping[str, Curve]


def curve_name(kind: Kind, *macs: str) -> str:
    """Key of a curve: its kind, then device ids: a hop's sender and receiver, or a reduce's head and number of ranks.

    Amounts: "token": bytes of weights read per token; "prompt": such bytes times the tokens of a chunk; "load": bytes
    of weights; "hop": bytes of a frame; "reduce": bytes summed at once; "lead" (1): the head's extra time per token,
    such as sampling; "join" (1): extra time of a load, such as linking; "plan": tokens at once through a whole plan,
    keyed by `core.plan.forecast.shape_of`.
    """
    return " ".join((kind, *macs))


def is_whole(name: str) -> bool:
    return name.partition(" ")[0] == "plan"


def point_of(amount: float, times: Sequence[float]) -> Point:
    return Point(amount, median_low(times), tuple(times))


def learned(curve: Curve, amount: float, seconds: float, *, anew: bool = False) -> Curve:
    """Add a measurement to a point of similar amount, or replace it; too many points drop the most crowded."""
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
    """Predict the time of `amount`; None if it is beyond `reach` times the measured range.

    Linear between two points. Outside, along the line from first to last point, since neighbouring points are noisy;
    proportional with one point, or if that line does not rise.
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
    share = (amount - one.amount) / (other.amount - one.amount)
    return one.seconds + share * (other.seconds - one.seconds)
