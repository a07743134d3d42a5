"""Bars, sparks and their scales as text of a known width. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tui.state.format import bounded

TEXTURES = "█▓▒░"
STEPS = "▁▂▃▄▅▆▇█"
TINTS = ("$stage-1", "$stage-2", "$stage-3", "$stage-4")
_LEAST_TIME_S = 1e-5


def gauge(part: float, whole: float, width: int) -> str:
    """A bar of `width` cells, filled by part/whole; anything above zero fills at least one cell."""
    part, whole = bounded(part), bounded(whole)
    if whole <= 0:
        return STEPS[0] * width
    filled = max(0, min(width, round(bounded(width * part / whole))))
    if part > 0:
        filled = max(1, filled)
    return "▇" * filled + STEPS[0] * (width - filled)


def shares(weights: Sequence[int], width: int) -> list[int]:
    """`width` cells divided by `weights` (largest remainder); every weight gets at least one cell."""
    weights = [max(0, round(bounded(weight))) for weight in weights]
    total = sum(weights)
    if not weights or total <= 0 or width < len(weights):
        return [0] * len(weights)
    exact = [w * (width - len(weights)) / total for w in weights]
    cells = [int(e) for e in exact]
    by_remainder = sorted(range(len(weights)), key=lambda i: cells[i] - exact[i])
    for i in by_remainder[: width - len(weights) - sum(cells)]:
        cells[i] += 1
    return [c + 1 for c in cells]


def scale_top(longest: float) -> float:
    """The end of a time scale: the first of 1, 2, 5, 10, ... ms that holds `longest` seconds."""
    top = 0.001
    for factor in (1, 2, 5) * 5:
        if longest <= top * factor:
            return top * factor
        if factor == 5:
            top *= 10
    return top


def time_spark(samples: Iterable[float | None], top: float) -> str:
    """Times in seconds on the logarithmic scale of `time_scale`: 0.04 ms is visible next to 1.4 ms and 100 ms."""
    return spark(samples, top, _LEAST_TIME_S)


def time_scale(top: float) -> tuple[str, str]:
    """The labels of a time scale that ends at `top` seconds."""
    return f"{_LEAST_TIME_S * 1e3:g}", f"{top * 1e3:.0f} ms" if top < 1 else f"{top:.0f} s"


def columns(
    samples: Iterable[tuple[float, float]], now: float, window_s: float, width: int
) -> tuple[float | None, ...]:
    """Samples (at, value) as the mean of each of `width` slots; None where nothing was measured.

    Slots begin at whole multiples of their length, so a bar keeps its height while it moves to the left.
    """
    slot_s = window_s / width
    last = int(bounded(now) // slot_s)
    slots: list[list[float]] = [[] for _ in range(width)]
    for at, value in samples:
        index = width - 1 - (last - int(bounded(at) // slot_s))
        if 0 <= index < width:
            slots[index].append(bounded(value))
    return tuple(sum(s) / len(s) if s else None for s in slots)


def spark(values: Iterable[float | None], top: float, floor: float = 0.0) -> str:
    """One cell per value on the scale 0 to `top`, logarithmic if `floor` is above 0; a space for None."""
    last, top = len(STEPS) - 1, bounded(top)
    if top <= floor:
        return "".join(" " if v is None else STEPS[0] for v in values)

    def part(value: float) -> float:
        return value / top if floor <= 0 else math.log(max(value, floor) / floor) / math.log(top / floor)

    steps = [None if v is None else round(bounded(last * part(bounded(v)))) for v in values]
    return "".join(" " if step is None else STEPS[max(0, min(last, step))] for step in steps)
