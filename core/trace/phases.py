"""What stages told of their phases: step by step, from hop to hop, and as a file that trace viewers open."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from core.requests.trace import PHASES, STEP_TOTAL, Phase, PhaseTurn, StageTrace, TurnKind

_MICRO: Final = 1e6
_EIGHTHS: Final = 8 * _MICRO
_TRACKS: Final = 10  # numbers for those of a Mac, so that no two Macs have the same
_DIGITS: Final = 9  # whole nanoseconds: of more than 18 digits Perfetto reads another number


class StepPhases(NamedTuple):
    """What a stage spent on one step, in seconds; `seconds` names all thirteen phases."""

    kind: TurnKind
    total_s: float
    seconds: Mapping[Phase, float]


def steps_of(turns: Sequence[PhaseTurn]) -> dict[int, StepPhases]:
    """By step, all turns at it together."""
    reported: dict[int, StepPhases] = {}
    for turn in turns:
        before = reported.get(turn.step, StepPhases(turn.kind, 0.0, dict.fromkeys(PHASES, 0.0)))
        seconds = dict(before.seconds)
        for number, lap in turn.laps:
            seconds[PHASES[number]] += lap
        reported[turn.step] = StepPhases(before.kind, before.total_s + turn.total_s, seconds)
    return reported


def flights(stages: Sequence[StageTrace]) -> list[dict[int, float]]:
    """For each hop, from each stage to the next and from the last one home: by step, the seconds from the moment when
    the system had its frame until that was opened at the other end. Below zero where the clocks differ by more.
    """
    sent = [_moments(stage, "send_hop") for stage in stages]
    came = [_moments(stage, "aead_open") for stage in stages]
    return [
        {step: came[after][step] - at for step, at in sent[hop].items() if step in came[after]}
        for hop in range(len(stages))
        for after in [(hop + 1) % len(stages)]
    ]


def _moments(stage: StageTrace, phase: Phase) -> dict[int, float]:
    """When that phase of each step ended, by the clock of whoever asked."""
    return {turn.step: at - stage.ahead_s for turn in stage.turns if (at := turn.ends(phase)) is not None}


def chrome(stages: Sequence[StageTrace], model: str) -> str:
    """The text of a file in Chrome's trace format, which Perfetto opens: a process each Mac, its steps above their
    phases, all by the clock of whoever asked, from the first moment on. Characters stand as they are: Perfetto never
    gets past one, such as an emoji, that is written as two escapes.
    """
    zero = min((turn.start_s - stage.ahead_s for stage in stages for turn in stage.turns), default=0.0)
    clocks = {
        f"{stage.index}: {stage.mac}": {
            "ahead_s": round(stage.ahead_s, _DIGITS),
            "error_s": round(stage.error_s, _DIGITS),
        }
        for stage in stages
    }
    told = {
        "traceEvents": [event for stage in stages for event in _events(stage, zero)],
        "metadata": {"model": model, "clocks": clocks},
    }
    return json.dumps(told, ensure_ascii=False)


def _events(stage: StageTrace, zero: float) -> Iterator[dict[str, Any]]:
    pid = stage.index + 1  # to viewers, process 0 is the one that idles
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
    """One behind the other: Perfetto moves aside what begins a nanosecond before the one before it has ended, and puts
    what lasts no time below its like. Therefore times are in eighths of a microsecond, which are whole nanoseconds
    also when they are read from a float, and each lasts at least one.
    """
    ended = 0
    for part in parts:
        begins = max(ended, round(_EIGHTHS * (part.start_s - zero_s)))
        ended = max(begins + 1, round(_EIGHTHS * (part.start_s - zero_s + part.seconds)))
        times = {"ts": begins / 8, "dur": (ended - begins) / 8}
        yield {**track, "name": part.name, "cat": part.category, **times, "args": part.args}
