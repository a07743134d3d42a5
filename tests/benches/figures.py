"""Figures that the benches of this repository share: medians, speeds, and targets of ratios."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from tests.benches.results import Aim


def reach(ratio: float, *, at_most: float | None = None, at_least: float | None = None, counts: bool = True) -> Aim:
    """Compare `ratio` with a target; exactly one bound is given."""
    if at_most is not None:
        return Aim(limit=at_most, at_most=True, reached=ratio <= at_most, counts=counts)
    assert at_least is not None
    return Aim(limit=at_least, at_most=False, reached=ratio >= at_least, counts=counts)


def medians(samples: list[dict[str, float]]) -> dict[str, float]:
    return {name: median(s[name] for s in samples) for name in samples[0]}


def speed(times: Sequence[float]) -> float:
    """Tokens per second between the first and the last token, which came at `times` in seconds."""
    return (len(times) - 1) / (times[-1] - times[0])
