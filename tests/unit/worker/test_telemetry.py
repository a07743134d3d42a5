"""Reports of a stage's steps to the node: rare while there are many steps, and always one for the last."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from core.worker.telemetry import STEP_EVERY_S, Steps


@given(st.lists(st.floats(0.001, 2.0), min_size=1, max_size=200))
def test_steps_are_told_seldom_and_the_last_one_in_time(gaps: list[float]) -> None:
    """The loop is a worker's: it waits until the next step comes or a report is due."""
    told: list[tuple[float, int]] = []
    now = 0.0
    steps = Steps(lambda step: told.append((now, step)))
    assert steps.due is None
    for step, gap in enumerate(gaps, 1):
        if steps.due is not None and steps.due < now + gap:
            now += steps.due - now
            steps.report(now)
        now += gap
        steps.finished(step, now)
    assert told[0][1] == 1, "the first one at once"
    if steps.due is not None:
        assert steps.due - now <= STEP_EVERY_S
        now = steps.due
        steps.report(now)
    assert told[-1][1] == len(gaps)
    assert all(later[0] - earlier[0] >= STEP_EVERY_S - 1e-9 for earlier, later in pairwise(told))
    assert [step for _, step in told] == sorted({step for _, step in told})
    steps.report(now + 10.0)
    assert steps.due is None, "an idle worker has no reason to wake up"
    assert told[-1][1] == len(gaps)
