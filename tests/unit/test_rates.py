"""Limits of events per time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.rates import BackOff, Rate, Throttle, TokenBucket


@given(st.lists(st.floats(0, 3), max_size=200))
def test_a_sender_that_waits_as_long_as_it_must_keeps_its_rate(idle_s: list[float]) -> None:
    bucket, now = TokenBucket(Rate(20.0, 40.0)), 100.0
    for count, pause_s in enumerate(idle_s, 1):
        now += pause_s
        now += bucket.spend(now)
        assert count <= 40.0 + (now - 100.0) * 20.0 + 1e-6


@pytest.mark.parametrize(
    ("times", "taken"),
    [
        ((0.0, 0.0, 0.0), (True, True, False)),
        ((0.0, 0.0, 0.4, 0.5), (True, True, False, True)),
        ((0.0, 0.0, 9.0, 9.0, 9.0), (True, True, True, True, False)),
    ],
)
def test_a_bucket_gives_its_burst_and_then_its_rate(times: tuple[float, ...], taken: tuple[bool, ...]) -> None:
    bucket = TokenBucket(Rate(per_s=2.0, burst=2.0))
    assert tuple(bucket.take(now) for now in times) == taken


@pytest.mark.parametrize(
    ("times", "taken"),
    [((0.0, 0.4, 0.5, 0.9), (True, False, True, False)), ((7.0, 7.0, 8.0), (True, False, True))],
)
def test_a_throttle_lets_one_through_in_its_time(times: tuple[float, ...], taken: tuple[bool, ...]) -> None:
    throttle = Throttle(0.5)
    assert tuple(throttle.take(now) for now in times) == taken


def test_a_pause_grows_with_each_failure_until_something_has_run_steadily() -> None:
    back_off = BackOff((1, 5, 30), steady_s=60)
    waits = []
    for ran_s in (0, 0, 59, 10, 61, 0):
        back_off.started(100.0)
        waits.append(back_off.failed(100.0 + ran_s))
    assert waits == [1, 5, 30, 30, 1, 5]
    back_off.reset()
    back_off.started(0.0)
    assert back_off.failed(0.0) == 1
