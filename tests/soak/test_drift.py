"""When a figure counts as drifting."""

from __future__ import annotations

import random
from math import sin

import pytest

from tests.soak.drift import Bound, drifts, thinned, trend

MINUTES = [minute / 60 for minute in range(61)]


def test_a_line_is_known_exactly() -> None:
    found = trend([(at, 100 + 6 * at) for at in MINUTES])
    assert found
    assert (found.slope, found.low, found.high) == pytest.approx((6, 6, 6))
    assert (found.middle, found.hours) == pytest.approx((103, 1))


def test_what_stands_still_has_no_slope() -> None:
    assert trend([(at, 7.0) for at in MINUTES]) == (7.0, 0.0, 0.0, 0.0, 1.0)


@pytest.mark.parametrize("samples", [[], [(0.0, 1.0)] * 60, [(at, at) for at in MINUTES[:5]]])
def test_little_says_nothing(samples: list[tuple[float, float]]) -> None:
    assert trend(samples) is None


@pytest.mark.parametrize(
    ("per_hour", "share", "least", "expected"),
    [
        (0.0, 0.05, 0.0, False),
        (3.0, 0.05, 0.0, False),  # 3 % an hour
        (20.0, 0.05, 0.0, True),
        (20.0, 0.05, 30.0, False),  # below the least that counts
        (-20.0, 0.05, 0.0, False),
    ],
)
def test_noise_hides_no_drift_and_makes_none(per_hour: float, share: float, least: float, expected: bool) -> None:
    for seed in range(20):
        dice = random.Random(seed)
        samples = [(at, 100 + per_hour * at + dice.gauss(0, 5)) for at in MINUTES]
        found = trend(samples)
        assert found
        assert drifts(found, Bound(share, least)) is expected


def test_the_interval_has_the_slope_in_it_about_as_often_as_it_says() -> None:
    held = 0
    for seed in range(200):
        dice = random.Random(seed)
        found = trend([(at, 4 * at + dice.gauss(0, 1)) for at in MINUTES[::2]])
        assert found
        held += found.low <= 4 <= found.high
    assert 180 <= held <= 199


def test_a_busy_while_is_noise() -> None:
    """A last quarter that takes three times as long, as on a busy machine, is no drift."""
    busy = [(at, 300.0 if 0.6 < at < 0.85 else 100 + 2 * sin(60 * at)) for at in MINUTES]
    found = trend(busy)
    assert found
    assert not drifts(found, Bound(0.05, 0.0))


def test_a_run_shorter_than_an_hour_may_grow_by_as_much() -> None:
    """A node that fills its caches in two minutes does not count as growing thirty times that in an hour."""
    found = trend([(at / 30, 100 + 90 * at / 30) for at in MINUTES])
    assert found
    assert found.slope == pytest.approx(90)
    assert not drifts(found, Bound(0.05, 0.0))


def test_samples_are_thinned_to_medians_of_equal_spans() -> None:
    assert thinned([(0.0, 1.0), (0.1, 9.0), (0.2, 2.0), (1.9, 5.0), (2.0, 7.0)], pieces=2) == [(0.1, 2.0), (1.95, 6.0)]
    assert thinned([(3.0, 1.0)]) == [(3.0, 1.0)]
    assert thinned([]) == []
