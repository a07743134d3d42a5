"""Steps of a trace as bars on one clock: per stage, lane and phase. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Final, Literal, NamedTuple

from core.requests.trace import PHASES, Phase, PhaseTurn, StageTrace, TraceResult, TurnKind

SHOWN: Final = 5
KINDS: Final[dict[TurnKind, str]] = {"chunk": "prefill", "step": "decode"}
WORKS: Final = frozenset({"embed", "layers_compute", "logits_compute"})

Doing = Literal["computes", "moves", "waits"]


class Bar(NamedTuple):
    """From `start_s` to `end_s`, by the clock of this Mac, a stage was at `phase` of `step`."""

    start_s: float
    end_s: float
    phase: Phase
    step: int

    @property
    def doing(self) -> Doing:
        if self.phase in WORKS:
            return "computes"
        return "waits" if self.phase == "recv_wait" else "moves"


class Track(NamedTuple):
    """Phases of stage number `stage` for one lane, in order; `lane` counts from 1."""

    stage: int
    lane: int
    bars: tuple[Bar, ...]

    @property
    def name(self) -> TrackName:
        return TrackName(self.stage, self.lane)


class TrackName(NamedTuple):
    """A track's stage number and lane."""

    stage: int
    lane: int


class Steps(NamedTuple):
    """The `numbers` of all steps that every stage reported, in order; the kind and lane of each."""

    numbers: tuple[int, ...]
    kinds: Mapping[int, TurnKind]
    lanes: Mapping[int, int]

    def last(self, at: int) -> tuple[int, ...]:
        return self.numbers[max(0, at + 1 - SHOWN) : at + 1]


def steps_in(traced: TraceResult) -> Steps:
    """The steps that every stage reported. Lanes are numbered in the order of their handles."""
    of_each = [{turn.step for turn in _computing(stage)} for stage in traced.stages]
    shared = reduce(set.__and__, of_each) if of_each else set()
    turns = {turn.step: turn for stage in traced.stages[:1] for turn in _computing(stage) if turn.step in shared}
    lane_of = {handle: lane for lane, handle in enumerate(sorted({turn.handle for turn in turns.values()}), 1)}
    return Steps(
        numbers=tuple(sorted(shared)),
        kinds={step: turn.kind for step, turn in turns.items()},
        lanes={step: lane_of[turn.handle] for step, turn in turns.items()},
    )


def tracks_of(traced: TraceResult, steps: Steps, chosen: Sequence[int]) -> list[Track]:
    """A track for each stage and lane of the `chosen` steps, stage by stage."""
    lanes = sorted({steps.lanes[step] for step in chosen})
    return [
        Track(stage.index, lane, tuple(bar for turn in turns for bar in _bars(stage, turn)))
        for stage in traced.stages
        for lane in lanes
        for turns in [[t for t in _computing(stage) if t.step in chosen and steps.lanes[t.step] == lane]]
    ]


def ends_of(tracks: Sequence[Track], step: int | None = None) -> tuple[float, float]:
    """When the first stage started to work and the last one ended; of one `step`, or of all."""
    bars = [bar for track in tracks for bar in track.bars if step in (None, bar.step) and bar.doing != "waits"]
    return min((bar.start_s for bar in bars), default=0.0), max((bar.end_s for bar in bars), default=0.0)


def next_name(tracks: Sequence[Track], chosen: TrackName | None, by: int) -> TrackName | None:
    """The track `by` places below the chosen one; None, which comes before the first, means all."""
    names = [None, *(track.name for track in tracks)]
    return names[((names.index(chosen) if chosen in names else 0) + by) % len(names)]


def cells(bars: Sequence[Bar], ends: tuple[float, float], width: int) -> list[Doing | None]:
    """The longest phase in each of `width` cells between the `ends`; None if unknown."""
    begin, cell_s = ends[0], (ends[1] - ends[0]) / width
    spent: list[dict[Doing, float]] = [{} for _ in range(width)]
    if cell_s <= 0:
        return [None] * width
    for bar in bars:
        first, last = (min(width - 1, max(0, int((at - begin) / cell_s))) for at in (bar.start_s, bar.end_s))
        for cell in range(first, last + 1):
            start_s, end_s = begin + cell * cell_s, begin + (cell + 1) * cell_s
            seconds = min(bar.end_s, end_s) - max(bar.start_s, start_s)
            if seconds > 0:
                spent[cell][bar.doing] = spent[cell].get(bar.doing, 0.0) + seconds
    return [max(each.items(), key=lambda one: one[1])[0] if each else None for each in spent]


def _computing(stage: StageTrace) -> list[PhaseTurn]:
    return [turn for turn in stage.turns if turn.kind in KINDS]


def _bars(stage: StageTrace, turn: PhaseTurn) -> list[Bar]:
    bars, at = [], turn.start_s - stage.ahead_s
    for number, seconds in turn.laps:
        bars.append(Bar(at, at + seconds, PHASES[number], turn.step))
        at += seconds
    return bars
