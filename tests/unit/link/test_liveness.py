"""Liveness and progress in simulated time: tables of silences, and properties over any of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.link.liveness import (
    BEAT_S,
    DEAD_S,
    HUNG_S,
    LATE_S,
    RESTS,
    STUCK_S,
    SUSPECT_S,
    Dead,
    Liveness,
    LivenessChange,
    ProgressClock,
    Slept,
    Suspected,
    Well,
    stuck_stage,
)

A, B = "a" * 64, "b" * 64
JUST = 1e-6


class TimedChange(NamedTuple):
    at: float
    change: LivenessChange


def run(liveness: Liveness, until: float) -> list[TimedChange]:
    """Tick until that moment."""
    told = []
    while liveness.due <= until:
        now = liveness.due
        told += [TimedChange(now, change) for change in liveness.tick(now)]
    return told


def kinds(told: Sequence[TimedChange]) -> list[type[LivenessChange]]:
    return [type(each.change) for each in told]


@pytest.mark.parametrize(
    ("silence_s", "expected"),
    [
        pytest.param(0.9, [], id="a-beat-is-missed"),
        pytest.param(SUSPECT_S - JUST, [], id="almost-suspect"),
        pytest.param(SUSPECT_S + JUST, [Suspected], id="suspect"),
        pytest.param(DEAD_S - JUST, [Suspected], id="almost-dead"),
        pytest.param(DEAD_S + JUST, [Suspected, Dead], id="dead"),
        pytest.param(60.0, [Suspected, Dead], id="told-once"),
    ],
)
@pytest.mark.parametrize("phase", [0.0, 0.1, 0.3, 0.499])
def test_a_silence_by_the_table(silence_s: float, expected: list[type[LivenessChange]], phase: float) -> None:
    liveness = Liveness()
    liveness.tick(100.0)
    liveness.add(A, 100.0 + phase)
    told = run(liveness, 100.0 + phase + silence_s)
    assert kinds(told) == expected
    for at, change in told:
        limit = DEAD_S if isinstance(change, Dead) else SUSPECT_S
        assert at == pytest.approx(100.0 + phase + limit), "at the moment, whenever the beat comes"


def test_a_flapping_mac_is_suspected_again_and_again_and_never_dead() -> None:
    liveness = Liveness()
    liveness.add(A, 0.0)
    liveness.add(B, 0.0)
    told = []
    for number in range(1, 21):
        for beat in range(3):
            liveness.note_sign(B, number * 2.0 - 1.5 + beat * BEAT_S)
        told += run(liveness, number * 2.0 - JUST)
        liveness.note_sign(A, number * 2.0)
        liveness.note_sign(B, number * 2.0)
    told += run(liveness, 41.0)
    assert [each.change for each in told] == [Suspected(A), Well(A)] * 20


def test_a_mac_that_is_removed_in_the_middle_is_not_told_of() -> None:
    liveness = Liveness()
    liveness.add(A, 0.0)
    liveness.add(B, 0.0)
    assert kinds(run(liveness, 2.0)) == [Suspected, Suspected]
    liveness.remove(A)
    liveness.note_sign(A, 2.1)
    assert (liveness.watched, liveness.is_suspect(A), liveness.is_suspect(B)) == ([B], False, True)
    (told,) = run(liveness, 9.0)
    assert told.at == pytest.approx(DEAD_S)
    assert told.change == Dead(B, told.at)
    assert (liveness.watched, liveness.is_suspect(B)) == ([], False)
    liveness.remove(B)
    liveness.add(A, 9.0)
    assert [each.at for each in run(liveness, 20.0)] == [pytest.approx(9.0 + SUSPECT_S), pytest.approx(9.0 + DEAD_S)]


def test_a_new_link_of_a_silent_mac_begins_well() -> None:
    liveness = Liveness()
    liveness.add(A, 0.0)
    run(liveness, 2.0)
    liveness.add(A, 2.0)
    assert not liveness.is_suspect(A)
    assert run(liveness, 2.0 + SUSPECT_S - JUST) == []


@given(st.floats(LATE_S + JUST, 1e7), st.floats(0.0, 2.4))
def test_a_sleep_of_any_length_blames_nobody(late_s: float, silence_s: float) -> None:
    liveness = Liveness()
    liveness.tick(0.0)
    liveness.add(A, 0.0)
    run(liveness, silence_s)
    was_suspect, woke = liveness.is_suspect(A), liveness.due + late_s
    slept, *others = liveness.tick(woke)
    assert isinstance(slept, Slept)
    assert slept.late_s == pytest.approx(late_s)
    assert others == ([Well(A)] if was_suspect else [])
    assert [each.at - woke for each in run(liveness, woke + 9.0)] == [
        pytest.approx(SUSPECT_S, abs=JUST),
        pytest.approx(DEAD_S, abs=JUST),
    ]


@pytest.mark.parametrize("phase", [0.0, 0.1, 0.3, 0.499])
def test_a_silence_at_rest_counts_later_and_is_forgiven_when_work_begins(phase: float) -> None:
    liveness = Liveness()
    liveness.add(A, 100.0 + phase)
    liveness.pace(A, 100.0 + phase, rests=True)
    last, began = 100.0 + phase, 100.0 + phase + SUSPECT_S * RESTS - JUST
    assert run(liveness, began) == []
    liveness.pace(A, began, rests=False)
    told = run(liveness, began + 60.0)
    assert [each.at - began for each in told] == [pytest.approx(SUSPECT_S), pytest.approx(DEAD_S)]
    liveness.add(A, last)
    liveness.pace(A, last, rests=True)
    told = run(liveness, last + 60.0)
    assert [each.at - last for each in told] == [pytest.approx(SUSPECT_S * RESTS), pytest.approx(DEAD_S * RESTS)]


def test_work_does_not_forgive_a_suspect() -> None:
    liveness = Liveness()
    liveness.add(A, 0.0)
    liveness.pace(A, 0.0, rests=True)
    assert kinds(run(liveness, SUSPECT_S * RESTS + 0.1)) == [Suspected]
    liveness.pace(A, liveness.due, rests=False)
    assert kinds(run(liveness, 60.0)) == [Dead]


def test_beats_are_slow_only_while_all_macs_rest() -> None:
    liveness = Liveness()
    liveness.add(A, 0.0)
    liveness.add(B, 0.0)
    for resting, beat_s in (({A}, BEAT_S), ({A, B}, BEAT_S * RESTS), ({B}, BEAT_S)):
        for mac in (A, B):
            liveness.pace(mac, 0.0, rests=mac in resting)
        liveness.tick(0.1)
        assert liveness.due == beat_s


LATE = st.one_of(st.just(0.0), st.floats(0.0, LATE_S), st.floats(LATE_S + JUST, 100.0))
HAPPENS = st.tuples(st.floats(0.0, 1.0), st.sampled_from(["heard", "heard", "add", "remove"]), st.sampled_from([A, B]))


@given(st.lists(st.tuples(LATE, st.lists(HAPPENS, max_size=3)), max_size=40))
def test_whatever_happens_the_dead_were_silent_and_the_silent_are_dead(
    rounds: list[tuple[float, list[tuple[float, str, str]]]],
) -> None:
    liveness, now = Liveness(), 0.0
    heard: dict[str, float] = {}
    states: dict[str, str] = {}
    liveness.tick(now)
    for late_s, happenings in rounds:
        due, before = liveness.due, now
        now = due + late_s
        for part, what, mac in sorted(happenings):
            at = before + part * (now - before)
            if what == "remove":
                liveness.remove(mac)
                heard.pop(mac, None)
            elif what == "add":
                liveness.add(mac, at)
                heard[mac], states[mac] = at, "well"
            else:
                liveness.note_sign(mac, at)
                heard |= {mac: at} if mac in heard else {}
        changes = liveness.tick(now)
        assert now < liveness.due <= now + BEAT_S
        if now - due > LATE_S:
            assert isinstance(changes.pop(0), Slept)
            heard = dict.fromkeys(heard, now)
        for change in changes:
            match change:
                case Suspected(mac):
                    assert states[mac] == "well"
                    assert SUSPECT_S - JUST < now - heard[mac] < DEAD_S
                    states[mac] = "suspect"
                case Well(mac):
                    assert states[mac] == "suspect"
                    assert now - heard[mac] < SUSPECT_S + JUST
                    states[mac] = "well"
                case Dead(mac, silence_s):
                    assert states[mac] == "suspect", "nobody dies unannounced"
                    assert now - heard.pop(mac) == pytest.approx(silence_s)
                    assert silence_s > DEAD_S - JUST
                case Slept():
                    pytest.fail("told once, and before all else")
        assert liveness.watched == sorted(heard, key=liveness.watched.index)
        assert all(now - at < DEAD_S + JUST for at in heard.values())
        silent = {mac: now - at for mac, at in heard.items() if abs(now - at - SUSPECT_S) > JUST}
        assert all(liveness.is_suspect(mac) == (silence_s > SUSPECT_S) for mac, silence_s in silent.items())


# ---- work that moves


class Worked(NamedTuple):
    """The seconds between moves from the start, and the seconds after which work counts as stuck and as dead."""

    gaps: list[float]
    stuck_s: float
    dead_s: float | None


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Worked([], 5.0, None), id="the-first-chunk-may-take-minutes"),
        pytest.param(Worked([300.0], 2400.0, 7200.0), id="and-the-second-one-too"),
        pytest.param(Worked([0.05] * 40, 5.0, 30.0), id="steps"),
        pytest.param(Worked([2.0] * 40, 16.0, 48.0), id="slow-steps"),
        pytest.param(Worked([0.0] * 40 + [8.0], 8.0, 30.0), id="a-chunk-after-steps"),
        pytest.param(Worked([8.0] + [0.0] * 16, 7.56, 30.0), id="a-long-wait-is-forgotten"),
    ],
)
def test_what_is_stuck_and_what_is_dead(case: Worked) -> None:
    clock, now = ProgressClock(), 1000.0
    clock.began(now)
    for gap in case.gaps:
        now += gap
        clock.moved(now)
    assert [clock.is_stuck(now + case.stuck_s + by) for by in (-0.01, 0.01)] == [False, True]
    if case.dead_s is None:
        assert not clock.is_dead(now + 1e6)
    else:
        assert [clock.is_dead(now + case.dead_s + by) for by in (-0.01, 0.01)] == [False, True]


def test_what_rests_is_never_stuck_and_begins_anew() -> None:
    clock = ProgressClock()
    assert not clock.is_stuck(1e6)
    clock.began(10.0)
    clock.moved(11.0)
    clock.rest()
    assert not clock.is_stuck(1e6)
    assert not clock.is_dead(1e6)
    clock.began(2000.0)
    assert not clock.is_stuck(2007.9), "the rest was no wait"
    assert clock.is_stuck(2008.1)
    assert not clock.is_dead(1e6), "nothing has moved yet"


def test_a_move_that_came_unexpected_begins_the_wait_for_the_next() -> None:
    """A caller that asks twice a second may hear of the first steps before it learns of the work."""
    clock = ProgressClock()
    clock.moved(100.0)
    clock.began(100.5)
    assert [clock.is_stuck(at) for at in (104.9, 105.1)] == [False, True]
    assert [clock.is_dead(at) for at in (129.9, 130.1)] == [False, True]


def test_more_that_begins_does_not_hide_that_nothing_moves() -> None:
    clock = ProgressClock()
    clock.began(0.0)
    clock.moved(0.1)
    for at in range(1, 40):
        clock.began(float(at))
    assert clock.is_stuck(0.1 + STUCK_S)
    assert clock.is_dead(0.1 + HUNG_S)


@given(st.lists(st.floats(0.0, 1e4), min_size=1, max_size=60))
def test_a_wait_that_ended_well_is_not_called_stuck_when_it_comes_again(gaps: list[float]) -> None:
    clock, now = ProgressClock(), 0.0
    clock.began(now)
    for gap in gaps:
        now += gap
        clock.moved(now)
    assert not clock.is_stuck(now + max(gaps[-1], STUCK_S) - 0.01)
    assert not clock.is_dead(now + max(3 * gaps[-1], HUNG_S) - 0.01)
    longest = max(gaps)
    assert clock.is_stuck(now + max(STUCK_S, 8 * longest) + 0.01), "no longer than the longest explains"
    assert clock.is_dead(now + max(HUNG_S, 24 * longest) + 0.01)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([], None),
        ([0], None),
        ([7], None),
        ([0, 0, 0], None),
        ([9, 9, 9], None),
        ([9, 8, 8], 1),
        ([9, 9, 8], 2),
        ([12, 9, 9, 9], 1),
        ([12, 11, 9, 9], 1),
        ([12, 12, 12, 11], 3),
        ([9, 0, 9], 1),
        ([9, 10, 9], 2),
        ([9, 10, 10], None),
    ],
    ids=str,
)
def test_where_the_ring_is_stuck(steps: list[int], expected: int | None) -> None:
    assert stuck_stage(steps) == expected
