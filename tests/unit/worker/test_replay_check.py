"""Logits of the first time and of the second: which are compared, and what is told of them."""

from __future__ import annotations

import mlx.core as mx
import msgspec
import pytest

from core.local.worker_ring import a_request
from core.node.answers.replay import checked, replay_text
from core.worker.replay_check import MOST_ROWS, ReplayCheck

FIRST = [0.0, 2.0, -1.0, float("-inf")]
ASKED = msgspec.structs.replace(a_request([5, 6, 7]), written=[8, 9])


def replay(*steps: tuple[int, ...]) -> ReplayCheck:
    """The logits are kept by which these steps chose these tokens of the answer."""
    check = ReplayCheck()
    for step in steps:
        check.keep(ASKED.request_id, step[0], [mx.array(FIRST) if index == 1 else mx.zeros(4) for index in step])
    return check


@pytest.mark.parametrize(
    ("steps", "wants"),
    [
        pytest.param([], False, id="nothing kept"),
        pytest.param([(0,)], False, id="an earlier one"),
        pytest.param([(0,), (1,)], True, id="the last one"),
        pytest.param([(0,), (1,), (2,)], True, id="one that the node did not hear of"),
        pytest.param([(1,), (2,), (3,)], False, id="too far ahead"),
        pytest.param([(0, 1, 2, 3), (4, 5, 6)], True, id="guesses that the node did not hear of"),
    ],
)
def test_what_chose_the_last_token_that_is_written_is_compared(steps: list[tuple[int, ...]], wants: bool) -> None:
    check = replay(*steps)
    assert check.wants(ASKED) is wants
    check.forget(ASKED.request_id)
    assert not check.wants(ASKED)


@pytest.mark.parametrize(
    ("again", "mismatches", "difference", "same_token", "says"),
    [
        pytest.param(
            FIRST, 0, 0.0, True, "all 4 logits are those of the first time; the most likely token is the same"
        ),
        pytest.param([0.0, 1.5, -1.25, FIRST[3]], 2, 0.5, True, "2 of 4 logits differ from the first time, by 0.5"),
        pytest.param([3.0, *FIRST[1:]], 1, 3.0, False, "the most likely token is ANOTHER one"),
        pytest.param([float("nan"), *FIRST[1:]], 1, 2**53 - 1, False, "1 of 4 logits differ"),
    ],
)
def test_differences_are_counted_and_told_once(
    again: list[float], mismatches: int, difference: float, same_token: bool, says: str
) -> None:
    check = replay((0,), (1,))
    told = check.compare(ASKED, mx.array(again))
    assert (told.tokens, told.logits, told.mismatches) == (4, 4, mismatches)
    assert told.difference == difference
    assert told.same_token is same_token or mx.isnan(mx.array(again)).any().item()
    assert says in replay_text(checked(told))
    assert not check.wants(ASKED)


def test_only_so_many_rows_are_kept_the_newest() -> None:
    check = ReplayCheck()
    asked = [msgspec.structs.replace(a_request([5]), written=[6]) for _ in range(MOST_ROWS + 1)]
    for request in asked:
        check.keep(request.request_id, 0, [mx.zeros(4)])
    assert [check.wants(request) for request in asked[:2]] == [False, True]
