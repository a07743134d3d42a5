"""Traced turns of stages as steps and hops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from core.requests.trace import PHASES, Phase, PhaseTurn, StageTrace, TurnKind


class StepPhases(NamedTuple):
    """Time of one stage on one step."""

    kind: TurnKind
    total_s: float
    seconds: Mapping[Phase, float]  # of each of the thirteen phases


def steps_of(turns: Sequence[PhaseTurn]) -> dict[int, StepPhases]:
    """Add up the turns of each step."""
    reported: dict[int, StepPhases] = {}
    for turn in turns:
        before = reported.get(turn.step, StepPhases(turn.kind, 0.0, dict.fromkeys(PHASES, 0.0)))
        seconds = dict(before.seconds)
        for number, lap in turn.laps:
            seconds[PHASES[number]] += lap
        reported[turn.step] = StepPhases(before.kind, before.total_s + turn.total_s, seconds)
    return reported


def flights(stages: Sequence[StageTrace]) -> list[dict[int, float]]:
    """Seconds from send to opening, per step and hop; negative where the clocks' error is larger."""
    sent = [_moments(stage, "send_hop") for stage in stages]
    came = [_moments(stage, "aead_open") for stage in stages]
    return [
        {step: came[after][step] - at for step, at in sent[hop].items() if step in came[after]}
        for hop in range(len(stages))
        for after in [(hop + 1) % len(stages)]
    ]


def _moments(stage: StageTrace, phase: Phase) -> dict[int, float]:
    """End of that phase for each step, by the clock of the Mac that traces."""
    return {turn.step: at - stage.ahead_s for turn in stage.turns if (at := turn.ends(phase)) is not None}
