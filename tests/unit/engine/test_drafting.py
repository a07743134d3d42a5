"""Guesses by a draft: when they pay, by measured times, and the effect of several windows on the ring."""

from __future__ import annotations

from random import Random

import pytest

from core.engine.drafting import FIRST_REST, TRIAL, Drafter, DraftTimes, StepPlace, Windows
from core.engine.ring_work import Trim
from tests.support.simulated import Foreseer, alone
from tests.support.simulated_head import Head, ask, ops_of, steps_of

FLAT = DraftTimes(round_s=0.1, more_s=0.001, guess_s=0.005, overlap=1 / 3)


@pytest.mark.parametrize(
    ("times", "windows", "rate", "per_token_s"),
    [
        pytest.param(DraftTimes(1.0), Windows(2, 1), 0.5, 1 / 1.5, id="a guess that costs nothing"),
        pytest.param(DraftTimes(1.0, guess_s=0.25), Windows(2, 1), 0.5, 1.0, id="one that costs what it gives"),
        pytest.param(DraftTimes(1.0, more_s=1.0), Windows(2, 1), 1e-9, 2.0, id="a step of two takes twice as long"),
        pytest.param(DraftTimes(1.0, overlap=0.5), Windows(1, 2), 0.5, 0.75, id="two windows are in flight"),
        pytest.param(DraftTimes(1.0, restart=2.0, overlap=0.5), Windows(1, 2), 0.5, 1.25, id="the wrong ones block"),
        pytest.param(DraftTimes(1.0, guess_s=1.0, overlap=0.5), Windows(1, 2), 0.5, 1.5, id="the draft is the slowest"),
    ],
)
def test_what_a_token_takes(times: DraftTimes, windows: Windows, rate: float, per_token_s: float) -> None:
    assert times.per_token(windows, rate) == pytest.approx(per_token_s)


class Machine:
    """A ring and a draft with known times, and a clock that they move."""

    def __init__(self, times: DraftTimes, right: float, *, stages: int = 3) -> None:
        self.times, self.now, self.random, self.right = times, 0.0, Random(1), right
        self.drafter = Drafter(self, 8, stages, lambda: self.now)

    def read(self, tokens: object) -> None:
        """Read in no time."""

    def propose(self, count: int) -> tuple[int, ...]:
        self.now += count * self.times.guess_s
        return (0,) * count

    def step(self) -> tuple[int, int]:
        """Run one window; returns its number of guesses, and how many of them were right."""
        guesses = len(self.drafter.propose([1], self.drafter.windows.size - 1))
        self.drafter.went(1 + guesses, StepPlace.ALONE)
        self.now += self.times.round_s + guesses * self.times.more_s
        right = next((n for n in range(guesses) if self.random.random() >= self.right), guesses)
        self.drafter.came(counts=True)
        if guesses:
            self.drafter.note_result(guesses, right)
        self.drafter.note_tokens(1 + right)
        return guesses, right


@pytest.mark.parametrize(
    ("times", "right", "least_gain"),
    [
        pytest.param(FLAT, 0.7, 1.8, id="a GPU"),
        pytest.param(FLAT, 0.95, 3.0, id="a good draft"),
        pytest.param(FLAT, 0.0, 0.97, id="a draft that knows nothing"),
        pytest.param(FLAT._replace(guess_s=0.1), 0.7, 0.97, id="a draft as slow as the model"),
        pytest.param(FLAT._replace(more_s=0.1), 0.7, 0.97, id="each token more takes as long as the first"),
    ],
)
def test_it_guesses_where_that_pays_and_costs_next_to_nothing_elsewhere(
    times: DraftTimes, right: float, least_gain: float
) -> None:
    machine, tokens = Machine(times, right), 0
    while tokens < 400:
        tokens += 1 + machine.step()[1]
    assert tokens * times.round_s / machine.now >= least_gain


def test_a_step_without_guesses_comes_first_and_a_trial_behind_each_rest() -> None:
    machine = Machine(FLAT._replace(guess_s=0.05), 0.0)
    guesses = [machine.step()[0] for _ in range(2 + 3 * FIRST_REST)]
    tried = [at for at, count in enumerate(guesses) if count]
    assert {guesses[at] for at in tried} == {TRIAL - 1}
    assert tried == [1, 1 + FIRST_REST, 1 + 3 * FIRST_REST]


def measured(stages: int, rate: float) -> Drafter:
    """A drafter that has measured that windows in flight pay."""
    clock = iter(range(1 << 30))
    drafter = Drafter(Foreseer(stages, rate, Random(2)), 1, stages, lambda: next(clock) / 1000)
    for tokens in (1, 2, 2, 2):
        drafter.went(tokens, StepPlace.ALONE)
        for _ in range(100 * (tokens == 1)):
            next(clock)
        drafter.came(counts=True)
        drafter.propose([1], 1)
        drafter.note_result(8, 8)
    assert drafter.windows.in_flight == stages
    return drafter


def test_every_stage_has_a_window_while_one_person_waits() -> None:
    head = Head(3, draft=1, drafter=measured(3, 1.0))
    request = ask("a", 3, 40)
    head.submit(request)
    most = 0
    while not head.scheduler.idle:
        most = max(most, len(steps_of(head.round())))
    assert most >= 3
    assert head.answers["a"] == alone(request, 3)
    assert head.kinds["void"] <= 1, "they were right, but for what the answer had no room for"


def test_what_is_behind_a_wrong_guess_is_dropped_and_trimmed_with_the_next_composition() -> None:
    head = Head(3, draft=1, drafter=measured(3, 0.6))
    request = ask("a", 3, 60)
    head.submit(request)
    put = head.finish()
    assert head.answers["a"] == alone(request, 3)
    assert head.kinds["void"] > 0
    assert any(isinstance(op, Trim) for op in ops_of(put))
    head.check_parked()


def test_who_comes_while_windows_are_in_flight_joins_and_both_are_exact() -> None:
    head = Head(2, draft=2, drafter=measured(2, 0.8))
    first, second = ask("a", 3, 40), ask("b", 4, 40)
    head.submit(first)
    for _ in range(6):
        head.round()
    while head.turn(0.0):
        pass
    head.submit(second)
    head.carry()
    head.finish()
    assert head.kinds["window"] > 0
    assert [head.answers[each.request_id] for each in (first, second)] == [alone(each, 2) for each in (first, second)]


def test_one_that_is_cancelled_with_windows_in_flight_leaves_what_is_right_of_it() -> None:
    head = Head(3, draft=1, drafter=measured(3, 0.8))
    request = ask("a", 3, 60)
    head.submit(request)
    for _ in range(8):
        head.round()
    while head.turn(0.0):
        pass
    head.cancel("a")
    head.carry()
    head.finish()
    head.check_parked()
    assert head.answers["a"] == alone(request, 3)[: len(head.answers["a"])]
