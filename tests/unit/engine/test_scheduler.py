"""Admission, the chunks of prompts, and the ends of requests."""

from __future__ import annotations

from itertools import pairwise, takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.engine.prefix_cache import CachedPrefix
from core.engine.ring_work import Chunk, Compose, Drop, Extract, Keep, New, Step
from core.engine.scheduler import EndedRow, PrefillProgress, Scheduler
from core.errors import Busy
from core.events import FinishReason
from tests.support.simulated import alone
from tests.support.simulated_head import Head, ask, ops_of, running, steps_of

# admission


def test_requests_are_admitted_first_in_first_out_while_there_is_room() -> None:
    head = Head(2, rows=2)
    for name in "abcd":
        head.submit(ask(name, tokens=2))
    assert ops_of(head.round()) == [New(1), New(2)]
    assert (head.scheduler.running, head.scheduler.waiting) == (2, 2)
    assert ops_of(head.round()) == []
    work = head.round()
    assert ops_of(work) == [Drop(1), Drop(2), New(3), New(4)]
    assert [step.requests for step in steps_of(work)] == [("c",), ("d",)]


def test_a_full_queue_is_busy_until_something_ends() -> None:
    head = Head(1, rows=1, queue=1)
    assert head.submit(ask("a"))
    assert head.submit(ask("b")), "the first one runs as soon as the ring is asked"
    with pytest.raises(Busy, match="no more are accepted"):
        head.scheduler.submit(ask("c"))
    head.round()
    assert not head.submit(ask("d"))
    assert head.scheduler.cancel("b") == EndedRow("b", "cancelled")
    assert head.submit(ask("e"))


@pytest.mark.parametrize(
    ("context", "sizes", "admitted"),
    [
        pytest.param(30, [10, 20, 1], 2, id="what fits together"),
        pytest.param(29, [10, 20, 1], 1, id="nobody overtakes"),
        pytest.param(5, [10, 1], 1, id="one runs however large"),
        pytest.param(99, [10, 10, 10, 10], 3, id="not more than the rows"),
    ],
)
def test_rows_share_the_context(context: int, sizes: list[int], admitted: int) -> None:
    head = Head(2, rows=3, context=context)
    for number, size in enumerate(sizes):
        head.submit(ask(chr(ord("a") + number), tokens=size - 1))
    head.turn(0.0)
    assert head.scheduler.running == admitted


def test_a_request_that_may_fill_the_context_leaves_room_for_others_until_it_does() -> None:
    head = Head(2, rows=3, context=40, growth=5)
    asked = [ask("a", tokens=39), ask("b", tokens=39), ask("c", prompt=4, tokens=2)]
    for each in asked:
        head.submit(each)
    head.turn(0.0)
    assert head.scheduler.running == 3
    put = head.finish()
    assert all(head.answers[each.request_id] == alone(each, 2) for each in asked)
    assert [name for name in head.ended if name != "c"] == ["a", "b"], "the one that came first goes on"
    assert head.kinds["displaced"] == 1
    assert len(steps_of(put)) < 100
    head.check_parked()


def test_displaced_rows_go_on_in_their_order_and_before_new_ones() -> None:
    """The last one has the fewest tokens left, and is displaced first."""
    head = Head(1, rows=4, context=40, growth=5)
    asked = [ask("a", tokens=39), ask("b", tokens=30), ask("c", tokens=20)]
    for each in asked:
        head.submit(each)
    while head.kinds["displaced"] < 2:
        head.round()
    head.submit(new := ask("d"))
    assert [request.request_id for request in head.scheduler._queue.requests] == ["b", "c", "d"]
    head.finish()
    assert all(head.answers[each.request_id] == alone(each, 1) for each in (*asked, new))
    assert [*head.ended] == ["a", "b", "c", "d"]


def test_a_row_that_padding_would_make_too_large_has_a_lane_of_its_own() -> None:
    head = Head(1, rows=3, context=40)
    asked = [ask("a", prompt=25, tokens=5), ask("b", prompt=2, tokens=3), ask("c", prompt=2, tokens=3)]
    for each in asked:
        head.submit(each)
    put = head.finish()
    assert head.kinds["displaced"] == 0
    assert {step.requests for step in steps_of(put)} >= {("a",), ("b", "c")}
    assert all(head.answers[each.request_id] == alone(each, 1) for each in asked)


def test_helpers_with_one_prefix_share_its_memory_only_as_long_as_the_first_answers_briefly() -> None:
    """Memory has room for the cached conversation and one of two helpers."""
    head = Head(1, context=65, chunk=4, growth=6)
    head.submit(ask("a", prompt=30, tokens=1))
    head.finish()
    (cached,) = head.scheduler.parked
    for name in ("k1", "k2"):
        head.submit(ask(name, prompt=20 + len(head.answers), tokens=30))
    while len(head.answers["k1"]) < 6:
        assert cached in head.scheduler.parked
        head.round()
    head.round()
    assert head.scheduler.running == 2
    head.finish()


def test_a_cancelled_row_holds_its_memory_until_it_has_left_its_lane() -> None:
    head = running(2, "a", rows=1)
    assert isinstance(head.turn(0.0), Step)
    head.submit(ask("b"))
    head.cancel("a")
    assert head.turn(0.0) is None, "its step is on the ring"
    head.round()
    assert head.turn(0.0) == Compose((Drop(1), New(2)))


def test_500_rows_come_while_others_decode() -> None:
    head = Head(2, rows=6)
    asked = [ask(chr(ord("a") + number), prompt=1 + number % 7, tokens=3 + number % 9) for number in range(500)]
    for each in asked:
        while not head.submit(each):
            head.round()
        head.round()
    head.finish()
    assert all(head.answers[each.request_id] == alone(each, 2) for each in asked)
    head.check_parked()


def test_an_engine_that_has_run_dry_takes_the_next() -> None:
    head = Head(3)
    for name in "abcdef":
        head.submit(asked := ask(name, prompt=3, tokens=2))
        head.finish()
        assert head.answers[name] == alone(asked, 3)
        head.check_parked()
    assert head.turn(0.0) is None


# prompts


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 9), st.integers(2, 60))
def test_while_no_row_decodes_the_window_is_full_and_never_more(stages: int, window: int, size: int, n: int) -> None:
    head = Head(stages, window=window, chunk=size)
    head.submit(ask("a", prompt=n))
    head.turn(0.0)
    head.carry()
    parts = -(-(n - 1) // size)
    put = list(takewhile(lambda work: isinstance(work, Chunk), iter(lambda: head.turn(0.0), None)))
    assert len(put) == min(window, parts)
    if window < parts:
        for link in (*range(1, stages), 0):
            head.ring.deliver(link) if link else head.collect(0.0)
        assert isinstance(head.turn(0.0), Chunk), "one came back, one goes"
        assert not isinstance(head.turn(0.0), Chunk)


def test_chunks_of_a_second_prompt_follow_those_of_the_first() -> None:
    head = Head(3, window=3, chunk=4)
    head.submit(ask("a", prompt=9))
    head.submit(ask("b", prompt=9))
    work = [each for each in head.round() if not isinstance(each, Compose)]
    assert [(type(each), each.requests) for each in work] == [
        (Chunk, ("a",)),
        (Chunk, ("a",)),
        (Step, ("a",)),
        (Chunk, ("b",)),
    ]


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_a_row_that_decodes_waits_for_one_chunk_at_most_between_two_steps(stages: int) -> None:
    head = running(stages, "a", chunk=1, window=8)
    head.submit(ask("b", prompt=20))
    order = [type(work) for _ in range(20) for work in head.round() if not isinstance(work, Compose)]
    assert order.count(Chunk) == 19
    assert all({one, other} == {Chunk, Step} for one, other in pairwise(order[: 2 * 19])), "by turns"


def test_where_steps_come_back_at_once_a_prompt_gets_its_turn() -> None:
    head = running(1, "a", chunk=1)
    head.submit(ask("b", prompt=4))
    order = []
    for _ in range(9):
        order.append(type(head.turn(0.0)))
        head.collect(0.0)
    assert order == [Compose, Chunk, Step, Chunk, Step, Chunk, Compose, Step, Step]


def test_how_much_of_a_prompt_went_round_is_told() -> None:
    scheduler = Scheduler(stages=2, rows=2, context=99, chunk=3, window=9, batched=True, queue=1)
    scheduler.submit(ask("a", prompt=6))
    new, first, second = (scheduler.next() for _ in range(3))
    assert isinstance(new, Compose)
    assert isinstance(first, Chunk)
    assert isinstance(second, Chunk)
    assert [scheduler.acked(new), scheduler.acked(first)] == [[], [PrefillProgress("a", 3, 6)]]
    scheduler.cancel("a")
    assert scheduler.acked(second) == []


# ends


@pytest.mark.parametrize(
    ("min_tokens", "max_tokens", "sampled", "ends"),
    [
        pytest.param(0, 9, [7], ("stop", 1), id="eos at once"),
        pytest.param(2, 9, [7, 7, 7], ("stop", 3), id="eos counts behind min_tokens tokens"),
        pytest.param(0, 2, [1, 2], ("length", 2), id="max_tokens"),
        pytest.param(0, 2, [1, 7], ("stop", 2), id="eos as the last token"),
        pytest.param(2, 2, [7, 7], ("length", 2), id="max_tokens before min_tokens"),
    ],
)
def test_when_an_answer_ends(
    min_tokens: int, max_tokens: int, sampled: list[int], ends: tuple[FinishReason, int]
) -> None:
    scheduler = Scheduler(stages=1, rows=1, context=99, chunk=3, window=1, batched=True, queue=0)
    scheduler.submit(ask("a", tokens=max_tokens, min_tokens=min_tokens, eos=[7, 8]))
    scheduler.next()
    for number, token in enumerate(sampled, 1):
        step = scheduler.next()
        assert isinstance(step, Step)
        if ended := scheduler.stepped(step, [[token]]).ended:
            assert (ended, number) == ([EndedRow("a", ends[0])], ends[1])
    assert not scheduler.alive("a")


def test_cancel_ends_what_waits_and_what_runs_and_nothing_else() -> None:
    head = running(1, "abc", rows=2)
    assert head.scheduler.cancel("c") == EndedRow("c", "cancelled")
    flying = head.turn(0.0)
    assert isinstance(flying, Step)
    assert flying.requests == ("a", "b")
    assert head.scheduler.cancel("a") == EndedRow("a", "cancelled")
    assert [head.scheduler.alive(name) for name in "abc"] == [False, True, False]
    assert [head.scheduler.cancel(name) for name in "az"] == [None, None]
    head.watch.over("a")
    before = len(head.answers["a"]), len(head.answers["b"])
    assert head.round() == [], "the lane is under way"
    assert (len(head.answers["a"]), len(head.answers["b"])) == (before[0], before[1] + 1)
    assert ops_of(head.round()) == [Extract(4, 3, 0), Keep(3, (1,))]


@pytest.mark.parametrize(
    ("chunk", "kept"), [pytest.param(1, 0, id="too little to be of use"), pytest.param(2, 4, id="what is on the ring")]
)
def test_a_prompt_that_is_cancelled_on_its_way_is_parked_as_far_as_it_came(chunk: int, kept: int) -> None:
    head = Head(2, chunk=chunk, window=2)
    head.submit(asked := ask("a", prompt=9))
    assert [type(head.turn(0.0)) for _ in range(4)] == [Compose, Chunk, Chunk, type(None)]
    head.cancel("a")
    assert head.turn(0.0) == (None if kept else Compose((Drop(1),)))
    assert head.scheduler.idle
    assert head.scheduler.parked == ((CachedPrefix(1, tuple(asked.tokens[:kept])),) if kept else ())
    head.round()
    head.check_parked()


@pytest.mark.parametrize("stage", [0, 1, 2])
@pytest.mark.parametrize(
    ("puts", "lost"),
    [
        pytest.param(0, ["c"], id="compose"),
        pytest.param(1, ["c"], id="chunk"),
        pytest.param(2, ["a"], id="step"),
    ],
)
def test_what_a_stage_could_not_do_costs_those_it_touched(stage: int, puts: int, lost: list[str]) -> None:
    head = running(3, "ab", chunk=9)
    head.submit(ask("c", prompt=5))
    for _ in range(puts):
        head.turn(0.0)
    head.carry()
    before, head.ring.stages[stage].fails = len(head.ring.outstanding), True
    head.turn(0.0)
    assert len(head.ring.outstanding) == before + (stage > 0), "what the head cannot do does not leave it"
    head.round()
    assert [name for name, reason in head.reasons.items() if reason == "lost"] == lost
    head.finish()
    head.check_parked()
    assert len(head.scheduler.parked) == 2, "of what failed nothing is reused"
    assert [head.reasons[name] for name in "abc" if name not in lost] == ["length"] * 2


def test_when_the_ring_is_gone_everything_ends_and_handles_are_new() -> None:
    head = running(2, "abc", rows=2)
    assert head.scheduler.drop_all() == ["a", "b", "c"]
    assert head.scheduler.idle
    assert head.scheduler.next() is None
    head.scheduler.submit(ask("d"))
    assert head.scheduler.next() == Compose((New(3),))


# steps that go ahead


@pytest.mark.parametrize(
    ("tokens", "number", "goes"),
    [
        pytest.param(9, 1, False, id="the first token is told first"),
        pytest.param(9, 2, True, id="nothing needs the token"),
        pytest.param(3, 2, True, id="the token before the last one"),
        pytest.param(2, 2, False, id="the last one"),
    ],
)
def test_when_a_step_goes_before_its_token_is_known(tokens: int, number: int, goes: bool) -> None:
    head = Head(2)
    head.submit(ask("a", tokens=tokens))
    head.turn(0.0)
    for _ in range(number):
        head.carry()
        step = head.turn(0.0)
    assert isinstance(step, Step)
    assert (head.scheduler.ahead(step) == Step(step.handle, ("a",), ())) is goes


@pytest.mark.parametrize("other", ["waits", "is read", "has ended"])
def test_no_step_goes_ahead_of_others(other: str) -> None:
    head = running(1, "ab", chunk=1)
    head.round()
    step = head.turn(0.0)
    assert isinstance(step, Step)
    assert step.requests == ("a", "b")
    if other == "has ended":
        head.cancel("a")
    else:
        head.submit(ask("c", prompt=9))
    if other == "is read":
        head.turn(0.0)
    assert head.scheduler.ahead(step) is None


def test_a_step_goes_ahead_of_a_request_that_has_no_room() -> None:
    head = running(1, "a", context=120)
    head.submit(ask("b", prompt=100))
    head.round()
    step = head.turn(0.0)
    assert isinstance(step, Step)
    assert head.scheduler.ahead(step)


@pytest.mark.parametrize("stages", [1, 3])
def test_a_row_that_ends_where_a_step_went_ahead_costs_that_step(stages: int) -> None:
    whole = alone(ask("a", prompt=5, tokens=9), stages)
    asked = ask("a", prompt=5, tokens=9, eos=[whole[4]], min_tokens=4)
    head = Head(stages, goes_ahead=True)
    head.submit(asked)
    while not head.scheduler.idle:
        head.round()
    assert head.answers["a"] == alone(asked, stages)
    assert head.reasons["a"] == "stop"
    assert head.kinds["ahead"] == len(head.answers["a"]) - 1
    (parked,) = head.scheduler.parked
    assert parked.tokens == (*asked.tokens, *head.answers["a"]), "the last token is on the ring, too"
    head.check_parked()
