"""Phases of real steps of two workers, over sealed links, with a wire between them that can be slowed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

import pytest

from core.requests.trace import PHASES, StageTrace
from core.trace.perfetto import perfetto_trace
from core.trace.phases import flights, steps_of
from tests.support.maker import make_model
from tests.support.viewers import opened
from tests.support.wires import Fault, wire
from tests.support.worker_ring import WorkerRing, worker_ring

STEPS = 250  # of each of two stages
FEW = 30
DELAY_S = 0.02
PROMPT = range(101, 140)


class Slowable(NamedTuple):
    """A ring, and the delay of each frame to its second stage."""

    ring: WorkerRing
    delay_s: list[float]

    def traced(self, tokens: int, first: int) -> tuple[list[StageTrace], list[float]]:
        """The trace of both stages during an answer, and the times of its tokens."""
        self.ring.phases(keep_tracing=True)
        answer = self.ring.generate([first, *PROMPT], max_tokens=tokens)
        assert len(answer.tokens) == tokens
        told = self.ring.phases(keep_tracing=False)
        return [StageTrace(mac="", index=index, turns=tuple(turns)) for index, turns in enumerate(told)], [
            *answer.times
        ]


@pytest.fixture(scope="module")
def slowable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slowable]:
    model, delay_s = tmp_path_factory.mktemp("phases") / "model", [0.0]
    make_model(model, "llama", layers=4, hidden=64, heads=2, kv_heads=1)

    def judge(_: int) -> Fault:
        time.sleep(delay_s[0])
        return "pass"

    with (
        wire(judge) as between,
        worker_ring(model, (2,), draft=0, reroute=lambda n, port: between.before(port) if n == 1 else port) as ring,
    ):
        yield Slowable(ring, delay_s)


def test_of_five_hundred_steps_the_phases_are_all_that_each_took(slowable: Slowable) -> None:
    stages, times = slowable.traced(STEPS, 1)
    for stage in stages:
        steps = [step for step in steps_of(stage.turns).values() if step.kind == "step"]
        assert len(steps) >= STEPS
        assert {step.kind for step in steps_of(stage.turns).values()} >= {"chunk", "step"}
        for step in steps:
            assert sum(step.seconds.values()) == pytest.approx(step.total_s, rel=0.05)
        # by the client's clock: nothing else happened between the first and the last token
        whole = sum(step.total_s for step in steps[2:])
        assert whole == pytest.approx(times[-1] - times[0], rel=0.05)
    tracks = opened(perfetto_trace(stages, "made"))
    assert [len(slices) for slices in tracks.values()] == [
        count for stage in stages for count in (len(stage.turns), sum(len(turn.laps) for turn in stage.turns))
    ]


def test_the_phases_that_are_seen_are_those_of_a_private_ring(slowable: Slowable) -> None:
    stages, _ = slowable.traced(FEW, 2)
    seen = [{phase for step in steps_of(s.turns).values() for phase in PHASES if step.seconds[phase]} for s in stages]
    assert seen[0] == set(PHASES) - {"allgather"}
    own = {"embed", "to_i32", "logits_compute", "allgather", "readback"}
    assert seen[1] == set(PHASES) - own


def test_a_slow_hop_is_seen_in_its_own_flight_and_in_no_phase_but_waits(slowable: Slowable) -> None:
    quick, _ = slowable.traced(FEW, 3)
    slowable.delay_s[0] = DELAY_S
    slow, _ = slowable.traced(FEW, 4)
    slowable.delay_s[0] = 0.0
    more = [
        median(after.values()) - median(before.values())
        for before, after in zip(flights(quick), flights(slow), strict=True)
    ]
    assert more[0] >= 0.9 * DELAY_S
    assert more[1] < 0.5 * DELAY_S
    for stage in slow:
        steps = [step for step in steps_of(stage.turns).values() if step.kind == "step"]
        least = {phase: min(step.seconds[phase] for step in steps) for phase in PHASES}
        assert {phase for phase in PHASES if least[phase] > 0.5 * DELAY_S} <= {"recv_wait"}


def test_what_is_switched_off_tells_nothing(slowable: Slowable) -> None:
    slowable.ring.generate([5, *PROMPT], max_tokens=3)
    assert slowable.ring.phases(keep_tracing=False) == [[], []]
