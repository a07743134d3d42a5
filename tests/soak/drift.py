"""Whether a figure drifts: the slope of its samples over time, with a confidence interval.

The slope is the median of the slopes between all pairs of samples, and its interval that of Kendall's rank correlation
(Theil 1950; Sen 1968, with its correction for ties). No shape of the noise is assumed, and a machine that is busy for a
while, or a process that restarts, changes the slope little.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, groupby
from math import ceil, floor, sqrt
from statistics import median
from typing import Final, NamedTuple

PIECES: Final = 60  # samples close together add no information
FEWEST: Final = 6
_NORMAL_95: Final = 1.96

Samples = Sequence[tuple[float, float]]  # hours, value


class Trend(NamedTuple):
    """`slope` per hour, between `low` and `high` with 95 % confidence.

    `middle`: the median value. `hours` from the first sample to the last.
    """

    middle: float
    slope: float
    low: float
    high: float
    hours: float


class Bound(NamedTuple):
    """Growth that counts as none: a share of the middle value, and at least `least`."""

    share: float
    least: float

    def most(self, middle: float) -> float:
        """The bound in the unit of the value."""
        return max(self.share * middle, self.least)


def thinned(samples: Samples, pieces: int = PIECES) -> list[tuple[float, float]]:
    """Medians of up to `pieces` equal spans of time, without the empty ones."""
    if not samples:
        return []
    first, last = min(at for at, _ in samples), max(at for at, _ in samples)
    width = (last - first) / pieces or 1.0

    def piece(sample: tuple[float, float]) -> int:
        return min(pieces - 1, int((sample[0] - first) / width))

    spans = [list(span) for _, span in groupby(sorted(samples), piece)]
    return [(median(at for at, _ in span), median(value for _, value in span)) for span in spans]


def trend(samples: Samples) -> Trend | None:
    """The trend of samples; None for too few."""
    count = len(samples)
    slopes = sorted((b - a) / (at_b - at_a) for (at_a, a), (at_b, b) in combinations(sorted(samples), 2) if at_b > at_a)
    if count < FEWEST or not slopes:
        return None
    ties = [len(list(same)) for _, same in groupby(sorted(value for _, value in samples))]
    spread = _spread(count) - sum(map(_spread, ties))
    reach = _NORMAL_95 * sqrt(max(0.0, spread))
    low, high = floor((len(slopes) - reach) / 2), ceil((len(slopes) + reach) / 2)
    times = [at for at, _ in samples]
    return Trend(
        middle=median(value for _, value in samples),
        slope=median(slopes),
        low=slopes[max(0, low)],
        high=slopes[min(len(slopes) - 1, high)],
        hours=max(times) - min(times),
    )


def drifts(found: Trend, bound: Bound) -> bool:
    """Whether it certainly grows by more than the bound in an hour, or in the whole run if that is shorter."""
    return found.low * min(1.0, found.hours) > bound.most(found.middle)


def _spread(count: int) -> float:
    """The variance of Kendall's S of `count` samples."""
    return count * (count - 1) * (2 * count + 5) / 18
