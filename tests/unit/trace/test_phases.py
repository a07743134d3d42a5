"""Phases by step, from hop to hop, and in the form of trace viewers; the clock that records them."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.requests.trace import PHASES, STEP_TOTAL, Phase, PhaseTurn, StageTrace
from core.trace.perfetto import perfetto_trace
from core.trace.phases import flights, steps_of
from core.worker import phases
from core.worker.phases import PhaseClock
from core.worker.telemetry import StageMeter
from tests.support.viewers import opened

SEALED: Phase = "aead_seal"


def a_turn(step: int, start_s: float, *laps: tuple[Phase, float]) -> PhaseTurn:
    numbered = tuple((PHASES.index(phase), seconds) for phase, seconds in laps)
    return PhaseTurn(step, "step", start_s, sum(seconds for _, seconds in laps), numbered)


HEAD = StageTrace(
    mac="studio",
    index=0,
    turns=(
        a_turn(7, 10.0, ("embed", 0.5), ("layers_compute", 1.0), (SEALED, 0.25), ("send_hop", 0.25)),
        a_turn(7, 12.0, ("recv_wait", 4.0), ("aead_open", 0.5), ("readback", 1.0)),
    ),
)
MEMBER = StageTrace(
    mac="📚 mini",
    index=1,
    ahead_s=100.0,
    error_s=0.001,
    turns=(a_turn(7, 111.0, ("recv_wait", 1.5), ("aead_open", 0.5), ("layers_compute", 2.0), ("send_hop", 0.5)),),
)


def test_turns_at_a_step_count_together() -> None:
    (step,) = steps_of(HEAD.turns).values()
    assert (step.kind, step.total_s) == ("step", 7.5)
    assert set(step.seconds) == set(PHASES)
    assert {phase: seconds for phase, seconds in step.seconds.items() if seconds} == {
        "embed": 0.5, "layers_compute": 1.0, "aead_seal": 0.25, "send_hop": 0.25, "recv_wait": 4.0, "aead_open": 0.5,
        "readback": 1.0,
    }  # fmt: skip


def test_a_flight_is_from_the_end_of_a_send_to_the_opening_by_one_clock() -> None:
    out, home = flights([HEAD, MEMBER])
    assert out == {7: pytest.approx(1.0)}  # sent at 12.0, opened at 113.0 by a clock that is 100 ahead
    assert home == {7: pytest.approx(1.0)}


def test_a_trace_is_in_chromes_format_on_one_clock() -> None:
    text = perfetto_trace([HEAD, MEMBER], "tiny")
    told, tracks = json.loads(text), opened(text)
    assert told["metadata"]["clocks"]["1: 📚 mini"] == {"ahead_s": 100.0, "error_s": 0.001}
    names = {event["args"]["name"] for event in told["traceEvents"] if event["name"] == "process_name"}
    assert names == {"stage 0: studio, clock ±0 µs", "stage 1: 📚 mini, clock ±1000 µs"}
    assert {
        key: [(each["ts"], each["dur"]) for each in slices] for key, slices in tracks.items() if key[1] % 10 == 1
    } == {
        (1, 11): [(0.0, 2e6), (2e6, 5.5e6)],
        (2, 21): [(1e6, 4.5e6)],
    }
    sealed = next(each for each in tracks[1, 12] if each["name"] == SEALED)
    assert (sealed["ts"], sealed["dur"], sealed["args"]) == (1.5e6, 0.25e6, {"step": 7})
    assert tracks[1, 11][0]["args"] == {"step": 7, STEP_TOTAL: 2.0}
    assert opened(perfetto_trace([], "tiny")) == {}


def test_seconds_have_no_more_digits_than_viewers_read() -> None:
    long_s = 0.00023159299962571822
    stage = StageTrace(mac="a", index=0, turns=(a_turn(1, 5.0, ("embed", long_s)),), ahead_s=-long_s, error_s=long_s)
    (step,) = opened(perfetto_trace([stage], "tiny"))[1, 11]
    assert step["args"][STEP_TOTAL] == 0.000231593


LAPS = st.lists(st.tuples(st.sampled_from(PHASES), st.floats(0, 0.1)), max_size=6)


@given(turns=st.lists(LAPS, max_size=12), start_s=st.floats(0, 1e6), ahead_s=st.floats(-1e6, 1e6))
def test_viewers_drop_nothing_of_any_trace(
    turns: list[list[tuple[Phase, float]]], start_s: float, ahead_s: float
) -> None:
    told = []
    for number, laps in enumerate(turns):
        told.append(a_turn(number, start_s, *laps))
        start_s += told[-1].total_s
    tracks = opened(perfetto_trace([StageTrace(mac="a", index=0, turns=tuple(told), ahead_s=ahead_s)], "tiny"))
    assert [each["args"]["step"] for each in tracks.get((1, 11), [])] == list(range(len(turns)))
    seen = [each["name"] for each in tracks.get((1, 12), [])]
    assert seen == [phase for laps in turns for phase, _ in laps]
    for one, turn in zip(tracks.get((1, 11), []), told, strict=True):
        assert one["dur"] == pytest.approx(1e6 * turn.total_s, abs=0.3 + len(turns) / 8)


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 5.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(phases, "monotonic", clock)
    return clock


WORDS = st.sampled_from(["lap", "arrived", "sent", "works", "aside", "end"])


@given(said=st.lists(st.tuples(WORDS, st.integers(1, 9), st.integers(0, 3)), max_size=60))
def test_whatever_is_said_the_phases_of_a_turn_are_all_of_it(said: list[tuple[str, int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock()
        patch.setattr(phases, "monotonic", clock)
        measured = PhaseClock()
        for word, ticks, number in said:
            clock.now += ticks
            match word:
                case "lap":
                    measured.lap(PHASES[number])
                case "arrived":
                    measured.arrived(0.25 * ticks, 0.25 * ticks)
                case "sent":
                    measured.sent(0.25 * ticks, "send_hop")
                case "works":
                    measured.works(number, "step")
                case "aside":
                    was_at = measured.work
                    measured.works(number, "chunk")
                    measured.lap("embed")
                    measured.back(was_at)
                case _:
                    measured.end()
        turns = measured.take(1000)
    for turn in turns:
        assert sum(seconds for _, seconds in turn.laps) == pytest.approx(turn.total_s)
    for before, after in pairwise(turns):
        assert after.start_s == pytest.approx(before.start_s + before.total_s)


def test_a_step_that_goes_ahead_takes_nothing_of_the_one_before(clock: Clock) -> None:
    measured = PhaseClock()
    measured.works(1, "step")
    clock.now += 1
    measured.lap("logits_compute")
    before = measured.work
    measured.works(2, "step")
    clock.now += 2
    measured.lap("layers_compute")
    measured.back(before)
    clock.now += 3
    measured.lap("readback")
    measured.end()
    told = [(turn.step, turn.start_s, turn.total_s) for turn in measured.take(9)]
    assert told == [(1, 5.0, 1.0), (2, 6.0, 2.0), (1, 8.0, 3.0)]


def test_switched_off_there_is_no_clock_and_rest_is_nobodys(clock: Clock) -> None:
    meter = StageMeter(0)
    assert meter.phases is None
    assert meter.trace(is_on=True, most=9) == []
    measured = meter.phases
    assert measured is not None
    clock.now += 100
    meter.start()
    measured.works(2, "step")
    clock.now += 1
    measured.lap("embed")
    measured.end()
    assert [turn.total_s for turn in meter.trace(is_on=False, most=9)] == [1.0]
    assert meter.phases is None
