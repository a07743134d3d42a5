"""A copy with a limit comes no quicker than that, whoever it comes from."""

from __future__ import annotations

import pytest

from core.node.disks.pace import CopyPace


@pytest.mark.parametrize("limit", [1_000, 50_000, 10_000_000])
def test_no_more_comes_than_the_limit_allows(limit: int) -> None:
    pace, asks, came = CopyPace(limit), [0.0, 0.0, 0.0], 0
    while min(asks) < 100.0:
        lane = asks.index(now := min(asks))  # the next to ask gets it at once
        came += 7_000
        asks[lane] = now + pace.wait_s(7_000, now)
    assert 0.9 * limit <= came / 100.0 <= 1.1 * limit + 210
    assert pace.most(1_000, 0.25) == max(1, limit // 4_000)


def test_without_a_limit_nobody_waits() -> None:
    assert CopyPace().wait_s(1 << 40, 5.0) == 0.0
    assert CopyPace().most(1 << 20, 0.25) > 1 << 20
