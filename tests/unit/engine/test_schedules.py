"""The engine over a network that does what it likes: each answer is what it would be alone, and nothing is left."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.schedules import Schedule


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(10_000, 10_500), id="500"),
        pytest.param(range(10_000), id="10000", marks=pytest.mark.slow),
    ],
)
def test_every_answer_is_what_it_would_be_alone_whatever_the_network_does(seeds: range) -> None:
    kinds: Counter[str] = Counter()
    for seed in seeds:
        schedule = Schedule(seed)
        try:
            schedule.run()
        except Exception as error:
            raise AssertionError(f"schedule {seed}") from error
        kinds += schedule.head.kinds + Counter(schedule.head.reasons.values())
        kinds["repeat"] += schedule.head.ring.repeats
        kinds["refused"] += schedule.refused
        kinds["resumed"] += schedule.resumed
        kinds["written"] += sum(bool(asked.written) for asked in schedule.requests)
        for ended in schedule.head.ended.values():
            kinds.update(reused=ended.reused, drafted=ended.drafted, accepted=ended.accepted)
    expected = {"Chunk", "Step", "New", "Merge", "Extend", "Keep", "Copy", "Extract", "Trim", "Restore", "Drop"}
    expected |= {"stop", "length", "cancelled", "lost", "repeat", "refused", "reused", "accepted"}
    expected |= {"resumed", "written"}
    assert min(kinds[kind] for kind in expected) > len(seeds) // 50, kinds
