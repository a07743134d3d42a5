"""The engine over a network with random faults: each answer equals the one alone, and no row remains."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.schedules import Schedule
from tests.support.search import seeds


@pytest.mark.slow
@pytest.mark.search
@pytest.mark.parametrize("those", seeds(500, 250))
def test_every_answer_is_what_it_would_be_alone_whatever_the_network_does(those: range) -> None:
    kinds: Counter[str] = Counter()
    for seed in those:
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
    expected |= {"resumed", "written", "ahead", "window", "void", "displaced"}
    assert min(kinds[kind] for kind in expected) > len(those) // 50, kinds
