"""Spans of a ring as a timeline: when each stage computed, how busy it was, how long all computed at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from statistics import median
from typing import Final, Literal, NamedTuple

import msgspec

from core.worker.messages import TraceSpan

SHADES: Final = "█░▓▒"
IDLE: Final = "·"

Traces = Sequence[Sequence[TraceSpan]]  # of each stage, in order
Interval = tuple[float, float]


class Block(NamedTuple):
    """A stage computed from `start_s` to `end_s`; `number` identifies the work, from 0."""

    start_s: float
    end_s: float
    number: int


Timeline = Sequence[Sequence[Block]]  # of each stage, in order; the first block of all begins at 0


class Activity(msgspec.Struct, frozen=True):
    """Shares of the `seconds` from the first block to the end of the last: those in which each stage computed, and
    those in which all did at once.
    """

    seconds: float
    busy: list[float]
    together: float


def timeline(traces: Traces, numbered: Literal["handle", "step"]) -> Timeline:
    """Blocks have the same number where the handle is the same (the rows of a lane), or the step (a chunk on its way
    from stage to stage); numbers count those in the order in which they were made. Compositions are left out: they
    compute nothing of the model.
    """
    spans = [[span for span in trace if span.kind != "compose"] for trace in traces]
    zero = min((span.start_s for trace in spans for span in trace), default=0.0)
    names = sorted({getattr(span, numbered) for trace in spans for span in trace})
    numbers = {name: number for number, name in enumerate(names)}
    return [
        [Block(span.start_s - zero, span.end_s - zero, numbers[getattr(span, numbered)]) for span in trace]
        for trace in spans
    ]


def middle(traces: Traces, seconds: float) -> Traces:
    """A piece of `seconds`; it begins with a block that the first stage begins in the middle of its work."""
    begins = [span.start_s for span in traces[0] if span.kind in ("chunk", "step")]
    start = begins[len(begins) // 2] if begins else 0.0
    stop = start + seconds
    return [
        [
            msgspec.structs.replace(span, start_s=max(span.start_s, start), end_s=min(span.end_s, stop))
            for span in trace
            if span.end_s > start and span.start_s < stop
        ]
        for trace in traces
    ]


def end_s(stages: Timeline) -> float:
    """When the last block ends."""
    return max((block.end_s for stage in stages for block in stage), default=0.0)


def activity(stages: Timeline) -> Activity:
    """Activity of stages whose blocks are in order and do not overlap."""
    seconds = end_s(stages)
    computed: list[list[Interval]] = [[(block.start_s, block.end_s) for block in stage] for stage in stages]
    together = reduce(_both, computed) if computed else []
    return Activity(
        seconds=seconds,
        busy=[_length(intervals) / seconds if seconds else 0.0 for intervals in computed],
        together=_length(together) / seconds if seconds else 0.0,
    )


def median_activity(activities: Sequence[Activity]) -> Activity:
    """Figure by figure; all of as many stages."""
    return Activity(
        seconds=median(a.seconds for a in activities),
        busy=[median(shares) for shares in zip(*(a.busy for a in activities), strict=True)],
        together=median(a.together for a in activities),
    )


def bars(stages: Timeline, seconds: float, width: int) -> list[str]:
    """A line of `width` characters for each stage, of the first `seconds`.

    Each character is a shade for the block in the middle of its time; shades repeat after the last one.
    """
    moments = [(at + 0.5) * seconds / width for at in range(width)]
    return ["".join(_shade(stage, moment) for moment in moments) for stage in stages]


def labelled(name: str, lines: Sequence[str]) -> list[str]:
    """The bars of all stages for people, with `name` before the first one."""
    return [f"  {'' if number > 1 else name:20} stage {number} {line}" for number, line in enumerate(lines, 1)]


def _shade(stage: Sequence[Block], moment: float) -> str:
    return next((SHADES[b.number % len(SHADES)] for b in stage if b.start_s <= moment < b.end_s), IDLE)


def _both(ones: list[Interval], others: list[Interval]) -> list[Interval]:
    """Where two lists of intervals overlap, each in order and without overlaps of its own."""
    overlaps, one, other = [], 0, 0
    while one < len(ones) and other < len(others):
        start, stop = max(ones[one][0], others[other][0]), min(ones[one][1], others[other][1])
        if start < stop:
            overlaps.append((start, stop))
        if ones[one][1] < others[other][1]:
            one += 1
        else:
            other += 1
    return overlaps


def _length(intervals: Sequence[Interval]) -> float:
    return sum(stop - start for start, stop in intervals)
