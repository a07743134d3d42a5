"""Steps that count once: the head's outstanding steps, and the replies of the other stages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.engine.ring_work import Chunk, Compose, New
from core.engine.steps import Outstanding, Replies
from core.errors import LinkTimeout, ProtocolError
from tests.support.simulated import Ring


def with_three_out(tries: int = 3) -> Outstanding[str]:
    """Steps put at 0, 1 and 2 seconds; a try takes 10."""
    out: Outstanding[str] = Outstanding(tries, try_s=10.0)
    assert [out.put(value, float(now)) for now, value in enumerate("abc")] == [1, 2, 3]
    return out


def test_what_is_put_is_out_until_it_is_answered() -> None:
    out = with_three_out()
    assert (len(out), out.base, out.next_step, out.values()) == (3, 1, 4, ["a", "b", "c"])
    assert out.answered(1, 3.0) == "a"
    assert (out.base, out.values()) == (2, ["b", "c"])
    assert out.answered(1, 3.0) is None, "a repeated answer is nothing"
    assert [out.answered(2, 3.0), out.answered(3, 3.0)] == ["b", "c"]
    assert (len(out), out.base) == (0, 4)


def test_an_answer_that_overtook_another_says_that_frames_were_lost() -> None:
    out = with_three_out()
    with pytest.raises(ProtocolError, match="answer to step 2 came, and none to step 1 before it"):
        out.answered(2, 3.0)
    assert out.values() == ["a", "b", "c"], "all of them are sent again"


@pytest.mark.parametrize("step", [-1, 0, 4])
def test_an_answer_to_what_was_never_put_is_refused(step: int) -> None:
    with pytest.raises(ProtocolError, match=f"step {step}, which was never sent"):
        with_three_out().answered(step, 3.0)


def test_the_clock_of_a_try_starts_with_what_is_put_first_and_with_every_answer_anew() -> None:
    out = with_three_out()
    assert out.deadline() == 10.0
    assert out.due(9.9) == []
    out.answered(1, 5.0)
    assert out.deadline() == 15.0
    assert out.due(14.9) == []
    assert out.due(15.0) == [(2, "b"), (3, "c")]
    assert out.deadline() == 25.0
    out.answered(2, 16.0)
    out.answered(3, 16.0)
    assert out.deadline() is None
    assert out.due(1e9) == []
    out.put("d", 100.0)
    assert out.deadline() == 110.0


def test_after_so_many_tries_without_an_answer_there_is_no_other() -> None:
    out = with_three_out(tries=3)
    assert len(out.due(10.0)) == 3
    assert len(out.due(20.0)) == 3
    with pytest.raises(LinkTimeout, match="did not answer step 1 after 3 tries"):
        out.due(30.0)


def test_an_answer_gives_the_rest_all_their_tries_again() -> None:
    out = with_three_out(tries=2)
    for step, now in ((1, 10.0), (2, 20.0), (3, 30.0)):
        assert out.due(now)[0][0] == step
        assert out.answered(step, now)


def test_a_new_ring_takes_what_is_out_and_costs_a_try() -> None:
    out = with_three_out(tries=3)
    assert out.resend(4.0) == [(1, "a"), (2, "b"), (3, "c")]
    assert out.due(13.9) == [], "what was sent over the new ring has its time"
    assert len(out.due(14.0)) == 3
    with pytest.raises(LinkTimeout):
        out.resend(15.0)


def test_a_new_ring_costs_nothing_while_nothing_is_out() -> None:
    out: Outstanding[str] = Outstanding(2, try_s=10.0)
    assert [out.resend(float(now)) for now in range(5)] == [[]] * 5
    out.put("a", 9.0)
    assert out.resend(10.0) == [(1, "a")]


def test_what_is_given_up_is_told_and_the_numbers_go_on() -> None:
    out = with_three_out()
    out.due(10.0)
    assert out.clear() == ["a", "b", "c"]
    assert (len(out), out.base, out.deadline()) == (0, 4, None)
    assert out.put("d", 20.0) == 4
    assert out.answered(2, 20.0) is None
    assert len(out.due(30.0)) == len(out.due(40.0)) == 1, "tries of before do not count"


def test_a_step_is_run_once_and_repeated_as_often_as_it_comes() -> None:
    replies: Replies[str] = Replies()
    assert replies.judge(1, 1) == "run"
    replies.keep(1, "one", 1)
    assert replies.judge(2, 1) == "run"
    replies.keep(2, "two", 1)
    for _ in range(2):
        assert [replies.judge(step, 1) for step in (1, 2)] == ["repeat", "repeat"]
        assert [replies.reply(step) for step in (1, 2)] == ["one", "two"]
    assert replies.last == 2


@pytest.mark.parametrize(
    ("step", "base"),
    [
        pytest.param(4, 1, id="a gap"),
        pytest.param(4, 4, id="a gap, the head had answers for it"),
        pytest.param(2, 3, id="answered before, says the head itself"),
    ],
)
def test_a_step_out_of_turn_is_refused(step: int, base: int) -> None:
    replies: Replies[str] = Replies()
    for number in (1, 2):
        replies.keep(number, "", 1)
    with pytest.raises(ProtocolError, match=f"Step {step} came after step 2"):
        replies.judge(step, base)


def test_what_the_head_has_its_answer_to_is_forgotten() -> None:
    replies: Replies[str] = Replies()
    for number in (1, 2, 3):
        replies.keep(number, str(number), base=max(1, number - 1))
    assert [replies.reply(step) for step in (2, 3)] == ["2", "3"]
    with pytest.raises(ProtocolError, match="Step 1 came once more"):
        replies.reply(1)


def test_a_stage_that_begins_anew_goes_on_where_the_head_says() -> None:
    replies: Replies[str] = Replies()
    replies.keep(1, "one", 1)
    replies.restart(7)
    with pytest.raises(ProtocolError):
        replies.judge(8, 7)
    assert replies.judge(7, 7) == "run"
    with pytest.raises(ProtocolError):
        replies.reply(1)


@given(st.integers(1, 4), st.lists(st.sampled_from(["put", "0", "1", "2", "3", "lose", "relink", "late"]), max_size=60))
def test_whatever_is_lost_or_comes_twice_each_stage_does_each_step_once_in_order(size: int, events: list[str]) -> None:
    ring, put, now = Ring(size, tries=1 << 30, try_s=5.0), 0, 0.0
    ring.put(Compose((New(1),)), now)
    for event in [*events, "relink"]:
        now += 1
        if event == "put":
            ring.put(Chunk(("a",), 1, (put,), ([put],)), now)
            put += 1
        elif event == "lose":
            ring.lose()
        elif event == "relink":
            ring.relink(now)
        elif event == "late":
            ring.send(ring.outstanding.due(now + 5))
        elif int(event) < size and ring.links[int(event)]:
            deliver(ring, int(event), now)
    for link in (*range(1, size), 0):
        while ring.links[link]:
            deliver(ring, link, now)
    assert [stage.handles[1][0].length for stage in ring.stages] == [put] * size
    assert len(ring.outstanding) == 0


def deliver(ring: Ring, link: int, now: float) -> None:
    """Deliver to a stage that does each chunk at its position or not at all: running one twice is an AssertionError."""
    try:
        if link:
            ring.deliver(link)
        else:
            ring.outstanding.answered(ring.links[0].popleft().step, now)
    except ProtocolError:
        ring.relink(now)
