"""Trace files in Chrome's format, which Perfetto opens."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from core.requests.trace import PHASES, STEP_TOTAL, StageTrace

_MICRO: Final = 1e6
_EIGHTHS: Final = 8 * _MICRO
_TRACKS: Final = 10  # track numbers per Mac, so that no two Macs share one
_DIGITS: Final = 9  # whole nanoseconds; Perfetto misreads numbers of more than 18 digits


def perfetto_trace(stages: Sequence[StageTrace], model: str) -> str:
    """Text of a trace file: a process per Mac, steps above phases; times from 0. Perfetto can't read escaped emoji."""
    zero = min((turn.start_s - stage.ahead_s for stage in stages for turn in stage.turns), default=0.0)
    clocks = {
        f"{stage.index}: {stage.mac}": {
            "ahead_s": round(stage.ahead_s, _DIGITS),
            "error_s": round(stage.error_s, _DIGITS),
        }
        for stage in stages
    }
    trace = {
        "traceEvents": [event for stage in stages for event in _events(stage, zero)],
        "metadata": {"model": model, "clocks": clocks},
    }
    return json.dumps(trace, ensure_ascii=False)


def _events(stage: StageTrace, zero: float) -> Iterator[dict[str, Any]]:
    pid = stage.index + 1  # viewers show process 0 as the idle process
    name = f"stage {stage.index}: {stage.mac}, clock ±{_MICRO * stage.error_s:.0f} µs"
    yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
    yield {"ph": "M", "pid": pid, "name": "process_sort_index", "args": {"sort_index": stage.index}}
    for track, (words, parts) in enumerate((("steps", _steps(stage)), ("phases", _phases(stage))), 1):
        tid = _TRACKS * pid + track
        yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": words}}
        yield from _slices({"ph": "X", "pid": pid, "tid": tid}, parts, zero + stage.ahead_s)


class _Part(NamedTuple):
    name: str
    category: str
    start_s: float
    seconds: float
    args: dict[str, float]


def _steps(stage: StageTrace) -> Iterator[_Part]:
    for turn in stage.turns:
        args = {"step": turn.step, STEP_TOTAL: round(turn.total_s, _DIGITS)}
        yield _Part(f"{turn.kind} {turn.step}", turn.kind, turn.start_s, turn.total_s, args)


def _phases(stage: StageTrace) -> Iterator[_Part]:
    for turn in stage.turns:
        at = turn.start_s
        for number, seconds in turn.laps:
            yield _Part(PHASES[number], turn.kind, at, seconds, {"step": turn.step})
            at += seconds


def _slices(track: dict[str, Any], parts: Iterator[_Part], zero_s: float) -> Iterator[dict[str, Any]]:
    """Slices without overlaps: Perfetto moves a slice aside that begins a nanosecond before the end of the last one,
    and nests one of no length. So times are in eighths of a microsecond, exact as floats, and each slice lasts one.
    """
    ended = 0
    for part in parts:
        begins = max(ended, round(_EIGHTHS * (part.start_s - zero_s)))
        ended = max(begins + 1, round(_EIGHTHS * (part.start_s - zero_s + part.seconds)))
        times = {"ts": begins / 8, "dur": (ended - begins) / 8}
        yield {**track, "name": part.name, "cat": part.category, **times, "args": part.args}
