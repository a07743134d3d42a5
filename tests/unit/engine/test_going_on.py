"""A request that continues a written part of its answer gives the undisturbed answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from core.engine.prefix_cache import CachedPrefix
from core.engine.requests import Request
from core.engine.ring_work import Chunk, Compose, Copy, Keep, Merge, New, Step, Trim
from core.engine.scheduler import PrefillProgress, Scheduler
from core.events import FinishReason
from tests.support.simulated import VOCABULARY, alone
from tests.support.simulated_head import Head, ask, ops_of, running, steps_of

STAGES = 3
REQUESTS = st.builds(
    Request,
    request_id=st.just(""),
    tokens=st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=20),
    max_tokens=st.integers(1, 20),
    min_tokens=st.integers(0, 5),
    eos=st.lists(st.integers(0, 7), max_size=3),
)


def named(requests: list[Request]) -> list[Request]:
    return [replace(request, request_id=f"{number:032x}") for number, request in enumerate(requests)]


@given(
    st.lists(REQUESTS, min_size=1, max_size=5).map(named),
    st.lists(st.floats(0, 1), min_size=5, max_size=5),
    st.sampled_from([0, 8]),
    st.booleans(),
    st.sampled_from([None, 0, 12]),
    st.integers(1, 6),
    st.integers(0, 40),
)
def test_wherever_an_answer_is_cut_the_rest_is_what_it_was(
    requests: list[Request],
    cuts: list[float],
    draft: int,
    batched: bool,
    trim_limit: int | None,
    chunk: int,
    cancelled: int,
) -> None:
    """The first one is also cancelled on its way, and asked for again at once."""
    head = Head(STAGES, rows=4, chunk=chunk, draft=draft, batched=batched, trim_limit=trim_limit)
    whole = [alone(request, STAGES) for request in requests]
    for request, answer, cut in zip(requests, whole, cuts, strict=False):
        assert head.submit(replace(request, written=answer[: round(cut * len(answer))]))
    for _ in range(cancelled):
        head.turn(0.0)
    head.cancel(requests[0].request_id)
    said = head.answers[requests[0].request_id]
    assert said == whole[0][: len(said)]
    assert head.submit(replace(requests[0], written=list(said)))
    head.carry()
    head.finish()
    assert [head.answers[request.request_id] for request in requests] == whole
    for request, answer in zip(requests, whole, strict=True):
        assert head.reasons[request.request_id] == request.end(len(answer), answer[-1])
    head.check_parked()


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        pytest.param([], None, id="nothing is written"),
        pytest.param([1, 2], None, id="it goes on"),
        pytest.param([1, 7], None, id="an end before there are enough"),
        pytest.param([1, 2, 7], "stop", id="an end"),
        pytest.param([1, 2, 3, 4], "length", id="all that it may have"),
        pytest.param([1, 2, 3, 7], "stop", id="an end as the last token"),
        pytest.param([1, 2, 3, 4, 5], "length", id="more than it may have"),
    ],
)
def test_an_answer_that_is_written_to_its_end_has_ended(written: list[int], reason: FinishReason | None) -> None:
    assert ask("a", tokens=4, min_tokens=2, eos=[7], written=written).ended == reason


def test_what_is_written_is_read_with_the_prompt_and_counts_in_the_answer() -> None:
    scheduler = Scheduler(stages=2, rows=2, context=99, chunk=4, window=9, batched=True, queue=1)
    asked = ask("a", prompt=4, tokens=5, written=[30, 31, 32])
    scheduler.submit(asked)
    _, first, second, step = (scheduler.next() for _ in range(4))
    assert isinstance(first, Chunk)
    assert isinstance(second, Chunk)
    assert [*first.tokens[0], *second.tokens[0]] == asked.prefix[:-1]
    told = [*scheduler.acked(first), *scheduler.acked(second)]
    assert told == [PrefillProgress("a", 4, 7), PrefillProgress("a", 6, 7)]
    assert isinstance(step, Step)
    assert step.tokens == (32,)
    assert scheduler.stepped(step, [[33]]) == ((1,), [])
    step = scheduler.next()
    assert isinstance(step, Step)
    (ended,) = scheduler.stepped(step, [[34]]).ended
    assert ended.reason == "length"
    assert scheduler.parked == (CachedPrefix(1, (*asked.prefix, 33)),)


def cut_off(name: str, prompt: int, written: int) -> Request:
    """A request with `written` tokens of its hundred, as after a loss of the workers."""
    asked = ask(name, prompt=prompt)
    return replace(asked, written=alone(asked, 2)[:written])


def test_what_is_read_again_travels_together_and_the_shortest_goes_on_first() -> None:
    head = Head(2, chunk=8, window=2)
    asked = [cut_off("a", 30, 12), cut_off("b", 21, 9), cut_off("c", 11, 6)]
    for each in asked:
        head.submit(each)
    works = [head.turn(0.0) for _ in range(3)]
    assert works[0] == Compose((New(1), New(2), New(3), Merge(4, (1, 2, 3))))
    rows = tuple(each.prefix[:2] for each in asked)
    assert works[1] == Chunk(("a", "b", "c"), 4, (0, 0, 0), rows), "no more tokens together than of one prompt"
    head.carry()
    chunks = [work for work in head.round() if isinstance(work, Chunk)]
    while len(chunks[-1].requests) == 3:
        chunks += [work for work in head.round() if isinstance(work, Chunk)]
    assert head.scheduler.in_flight or len(head.answers["c"]) > 6, "it goes on while the others are read"
    assert chunks[-1].requests == ("a", "b")
    assert len(chunks[-1].tokens[0]) == 4
    head.finish()
    assert all(head.answers[each.request_id] == alone(each, 2) for each in asked)
    head.check_parked()


def test_a_row_that_comes_later_joins_those_that_are_read_unless_they_are_far_ahead() -> None:
    head = Head(2, chunk=8, window=1)
    head.submit(cut_off("a", 40, 9))
    assert [type(work) for work in head.round()] == [Compose, Chunk]
    head.submit(cut_off("b", 40, 9))
    assert ops_of(head.round()) == [New(2), Merge(3, (1, 2))]
    for _ in range(4):
        head.round()
    head.submit(cut_off("c", 40, 9))
    (new,) = ops_of(head.round())
    assert new == New(4)
    head.finish()
    assert all(head.answers[name] == alone(ask(name, prompt=40), 2) for name in "abc")


@pytest.mark.parametrize("batched", [True, False])
def test_what_is_nearly_done_is_read_first_and_by_itself(batched: bool) -> None:
    head = Head(2, chunk=8, batched=batched, rows=2)
    head.submit(ask("d", prompt=9))
    for name, written in (("a", 9), ("b", 40), ("c", 90)):
        head.submit(cut_off(name, 9, written))
    first = next(work for work in iter(lambda: head.turn(0.0), None) if isinstance(work, Chunk))
    assert first.requests == ("c",)
    assert head.scheduler.alive("b"), "the next one by what is left"
    head.carry()
    head.finish()
    assert list(head.ended) == ["c", "b", "a", "d"]


def test_a_row_that_is_cancelled_or_lost_leaves_the_others_that_are_read() -> None:
    head = Head(2, chunk=8)
    for name in "abc":
        head.submit(cut_off(name, 30, 9))
    head.round()
    head.cancel("b")
    works = head.round()
    assert ops_of(works)[-1] == Keep(4, (0, 2))
    head.ring.stages[1].fails = True
    head.finish()
    assert head.reasons == {"b": "cancelled", "a": "lost", "c": "lost"}
    head.check_parked()


def test_where_caches_are_not_trimmed_a_prompt_is_kept_also_where_it_is_read_with_others() -> None:
    head = Head(2, chunk=8, trim_limit=0)
    asked = [cut_off(name, 10, 30) for name in "ab"]
    for each in asked:
        head.submit(each)
    head.finish()
    assert {tuple(each.tokens[:-1]) for each in asked} <= {parked.tokens for parked in head.scheduler.parked}
    assert all(head.answers[each.request_id] == alone(each, 2) for each in asked)
    head.check_parked()


def test_what_is_written_takes_no_room_twice() -> None:
    head = Head(2, context=40, rows=2)
    for name in "ab":
        head.submit(ask(name, prompt=4, tokens=16, written=list(range(10))))
    head.turn(0.0)
    assert head.scheduler.running == 2


def test_guesses_are_of_what_is_written_too_and_never_more_than_may_come() -> None:
    head = Head(2, chunk=100, draft=8)
    asked = Request(request_id="a", tokens=[0], max_tokens=14, written=[n % 4 for n in range(1, 12)])
    head.submit(asked)
    assert [step.drafts for step in steps_of(head.round())] == [(0, 1)]


@pytest.mark.parametrize("chunk", [3, 100])
def test_where_caches_are_not_trimmed_a_row_is_kept_at_the_end_of_its_prompt(chunk: int) -> None:
    """The next turn may start there, even if it has another answer."""
    head = Head(2, chunk=chunk, trim_limit=0)
    asked = ask("a", prompt=10, tokens=14)
    whole = alone(asked, 2)
    head.submit(replace(asked, written=whole[:6]))
    assert ops_of(head.finish()) == [New(1), Copy(2, 1)]
    assert head.scheduler.parked == (
        CachedPrefix(2, tuple(asked.tokens[:-1])),
        CachedPrefix(1, (*asked.tokens, *whole[:-1])),
    )
    assert head.answers["a"] == whole
    head.check_parked()


@pytest.mark.parametrize("trim_limit", [None, 0])
def test_what_memory_has_of_an_answer_is_not_read_again(trim_limit: int | None) -> None:
    head = Head(2, chunk=100, trim_limit=trim_limit)
    asked = ask("a", prompt=9, tokens=12)
    head.submit(asked)
    for _ in range(6):
        head.round()
    head.cancel("a")
    head.finish()
    said = list(head.answers["a"])
    assert len(said) >= 4
    head.submit(replace(asked, written=said))
    works = head.finish()
    assert not any(isinstance(work, Chunk) for work in works)
    assert not any(isinstance(op, Trim) for op in ops_of(works))
    assert head.ended["a"].reused == len(asked.tokens) + len(said) - 1
    assert head.answers["a"] == alone(asked, 2)
    head.check_parked()


def test_a_request_that_comes_again_waits_until_its_first_life_has_left() -> None:
    head = running(2, "ab", rows=3, batched=True, lanes=1)
    flying = head.turn(0.0)
    assert isinstance(flying, Step)
    assert flying.requests == ("a", "b")
    head.cancel("a")
    said, others = list(head.answers["a"]), len(head.answers["b"])
    head.submit(ask("a", written=said))
    assert not head.scheduler.alive("a"), "what comes back is of the first life"
    head.carry()
    assert head.answers["a"] == said
    assert len(head.answers["b"]) == others + 1
    head.finish()
    assert head.answers["a"] == alone(ask("a"), 2)
    head.check_parked()
