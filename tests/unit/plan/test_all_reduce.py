"""The steps in which ranks add up, and their expected cost."""

from __future__ import annotations

import pytest

from core.plan.all_reduce import GATHERED_BYTES, ReduceSteps, ring_steps, sealed_steps
from core.plan.forecast import HOP_BYTES_PER_S, HOP_WORK_S, MacSpeeds


@pytest.mark.parametrize(
    ("size", "ranks", "steps"),
    [
        (10_240, 2, ReduceSteps(1, 10_240)),
        (5_000_000, 2, ReduceSteps(1, 5_000_000)),  # as many bytes as a ring of sums would take
        (10_240, 3, ReduceSteps(2, 10_240)),
        (GATHERED_BYTES, 4, ReduceSteps(3, GATHERED_BYTES)),
        (GATHERED_BYTES + 4, 4, ReduceSteps(6, (GATHERED_BYTES + 4) / 4)),
    ],
)
def test_small_sums_and_those_of_two_take_half_the_steps(size: int, ranks: int, steps: ReduceSteps) -> None:
    assert sealed_steps(size, ranks) == steps
    assert ring_steps(size, ranks).number == 2 * (ranks - 1)


def test_every_step_is_expected_to_take_one_way_of_the_slowest_link() -> None:
    rtt = {frozenset("ab"): 0.001, frozenset("bc"): 0.004, frozenset("ca"): 0.001}
    macs = MacSpeeds({}, lambda *ends: rtt[frozenset(ends)], {})
    one = HOP_WORK_S + 0.002 + 10_000 / HOP_BYTES_PER_S
    assert macs.reduce(10_000, "abc", rdma=False).seconds == pytest.approx(2 * one)
