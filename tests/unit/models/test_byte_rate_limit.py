"""Limited traffic keeps its rate over all sources together; a changed limit counts at once."""

from __future__ import annotations

import pytest

from core.models.files.byte_rate_limit import ByteRateLimit


@pytest.mark.parametrize("limit", [1_000, 50_000, 10_000_000])
def test_no_more_comes_than_the_limit_allows(limit: int) -> None:
    pace, asks, came = ByteRateLimit(limit), [0.0, 0.0, 0.0], 0
    while min(asks) < 100.0:
        lane = asks.index(now := min(asks))  # the next lane to ask gets it at once
        came += 7_000
        asks[lane] = now + pace.left_s(pace.came(7_000, now), now)
    assert 0.9 * limit <= came / 100.0 <= 1.1 * limit + 210
    assert pace.most(1_000, 0.25) == max(1, limit // 4_000)


def test_without_a_limit_nobody_waits() -> None:
    pace = ByteRateLimit()
    assert pace.left_s(pace.came(1 << 40, 5.0), 5.0) == 0.0
    assert pace.most(1 << 20, 0.25) > 1 << 20


def test_who_waits_goes_on_where_the_limit_is_changed() -> None:
    pace = ByteRateLimit(10)
    until = pace.came(1_000, 5.0)
    assert pace.left_s(until, 6.0) == 99.0
    pace.change(1_000)
    assert pace.left_s(until, 6.0) == 0.0
    later = pace.came(1_000, 6.0)
    assert (pace.left_s(later, 6.0), pace.left_s(later, 6.5)) == (1.0, 0.5)
