"""One curve: a cost at three sizes, and the exponent with which it grows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from statistics import linear_regression
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Curve(NamedTuple):
    """A cost. `measure` prepares an empty folder for a size, and returns the cost there."""

    words: str
    unit: str
    sizes: tuple[int, int, int]
    measure: Callable[[Path, int], float]
    at_most: float  # the exponent; 0 is flat, 1 is as much work as there are things


def exponent(sizes: tuple[int, ...], costs: tuple[float, ...]) -> float:
    """The slope of the costs over the sizes, both as logarithms."""
    return linear_regression([math.log(size) for size in sizes], [math.log(max(cost, 1e-9)) for cost in costs]).slope


def cpu_ms(work: Callable[[], object], runs: int = 3) -> float:
    """CPU milliseconds of this process and its threads, the best of some runs."""
    took = []
    for _ in range(runs):
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return min(took) * 1e3
