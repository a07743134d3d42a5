"""Prompts reuse the rows of ended requests, and some of these rows make room."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import count, takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.engine.prefix_cache import CachedPrefix, Lent, PrefixCache, common_prefix, tokens_of
from core.engine.requests import Request
from core.engine.ring_work import Chunk, Copy, Drop, Extract, Keep, New, Op, Restore, Step, Trim
from core.errors import Busy
from tests.support.simulated import alone, chosen
from tests.support.simulated_head import Head, ask, ops_of, running, steps_of

TEN = tuple(range(10))


def said(*tokens: int, answer: int = 3) -> Request:
    return Request(request_id="a", tokens=[*tokens], max_tokens=answer)


def cache_of(*parked: Sequence[int], rows: int = 8, context: int = 100, trim_limit: int | None = None) -> PrefixCache:
    """Rows under the handles 1, 2, ..., the last one parked last."""
    handles = count(1)
    cache = PrefixCache(rows, context, trim_limit, handles)
    for tokens in parked:
        assert cache.park(next(handles), tuple(tokens), 0) == []
    return cache


def handles_of(cache: PrefixCache) -> list[int]:
    return [parked.handle for parked in cache.rows]


# the common start of two rows


@given(st.lists(st.integers(0, 1), max_size=600), st.data())
def test_the_common_prefix_is_what_a_count_finds(tokens: list[int], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(tokens)))
    other = tokens[:cut] + data.draw(st.lists(st.integers(0, 1), max_size=9))
    counted = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(tokens, other, strict=False))))
    assert common_prefix(tokens, other) == common_prefix(tuple(other), tuple(tokens)) == counted


@pytest.mark.parametrize("at", [0, 1, 255, 256, 257, 99_999, 100_000])
def test_long_rows_differ_where_they_do(at: int) -> None:
    row = tuple(range(100_000))
    assert common_prefix(row, (*row[:at], -1, *row[at + 1 :])) == at


# reuse


@pytest.mark.parametrize(
    ("trim_limit", "prompt", "ops", "handle", "reused"),
    [
        pytest.param(None, (*TEN, 7, 8), [], 1, 10, id="continued: taken over"),
        pytest.param(None, (*TEN, 7), [], 1, 10, id="all but the last token, which is fed"),
        pytest.param(None, (*TEN[:6], 7), [Copy(2, 1), Trim(2, 4)], 2, 6, id="edited: a copy, cut"),
        pytest.param(None, TEN, [Copy(2, 1), Trim(2, 1)], 2, 9, id="the same once more: never all of it"),
        pytest.param(None, TEN[:6], [Copy(2, 1), Trim(2, 5)], 2, 5, id="a part of it"),
        pytest.param(None, (*TEN[:3], 7, 7), [New(2)], 2, 0, id="too little in common"),
        pytest.param(None, TEN[:4], [New(2)], 2, 0, id="too little but the last token"),
        pytest.param(0, (*TEN, 7, 8), [Copy(2, 1)], 2, 10, id="not trimmed, continued: a copy"),
        pytest.param(0, (*TEN[:6], 7), [New(2)], 2, 0, id="not trimmed, edited: of no use"),
        pytest.param(10, (*TEN[:6], 7), [New(2)], 2, 0, id="too long to be cut"),
        pytest.param(11, (*TEN[:6], 7), [Copy(2, 1), Trim(2, 4)], 2, 6, id="just short enough to be cut"),
        pytest.param(15, (*TEN, 7, 8), [], 1, 10, id="short enough when the answer has ended: taken over"),
        pytest.param(14, (*TEN, 7, 8), [Copy(2, 1)], 2, 10, id="too long by then: a copy"),
    ],
)
def test_what_a_prompt_takes(
    trim_limit: int | None, prompt: tuple[int, ...], ops: list[Op], handle: int, reused: int
) -> None:
    cache = cache_of(TEN, trim_limit=trim_limit)
    assert cache.open(said(*prompt), 0) == (ops, handle, reused)
    assert handles_of(cache) == ([] if handle == 1 else [1])


@pytest.mark.parametrize(
    ("parked", "reused", "source"),
    [
        pytest.param([TEN[:4], TEN[:8], TEN[:6]], 8, 2, id="the longest"),
        pytest.param([(*TEN[:8], 9, 9), (*TEN[:8], 9, 8)], 8, 2, id="the newest of those that are alike"),
        pytest.param([TEN[:8], (*TEN[:8], 9, 9)], 8, 1, id="rather all of one than a part of another"),
    ],
)
def test_which_row_is_reused(parked: list[tuple[int, ...]], reused: int, source: int) -> None:
    ops, handle, common = cache_of(*parked).open(said(*TEN), 0)
    assert common == reused
    assert source == next((op.of for op in ops if isinstance(op, Copy)), handle)


ROWS = st.lists(st.lists(st.integers(0, 1), min_size=4, max_size=12), max_size=5)


@given(ROWS, ROWS, st.lists(st.integers(0, 1), min_size=1, max_size=12), st.sampled_from([None, 0, 7]))
def test_as_much_is_reused_as_can_be(
    parked: list[list[int]], running: list[list[int]], prompt: list[int], trim_limit: int | None
) -> None:
    cache = PrefixCache(8, 1000, trim_limit, count(100))
    for handle, tokens in enumerate(parked):
        cache.park(handle, tuple(tokens), 0)
    lent = [Lent(tuple(tokens), partial(Copy, of=50 + at)) for at, tokens in enumerate(running)]
    possible = [
        n
        for tokens in (*parked, *running)
        for n in range(4, len(prompt))
        if tokens[:n] == prompt[:n] and (n == len(tokens) or cache.can_trim(len(tokens)))
    ]
    assert cache.open(said(*prompt), 0, lent).reused == max((n for n in possible if n <= len(prompt) - 1), default=0)


@given(ROWS, st.lists(st.integers(0, 40), max_size=6), st.sampled_from([None, 0, 7]))
def test_what_is_at_rest_fits_beside_what_runs(
    prompts: list[list[int]], grown: list[int], trim_limit: int | None
) -> None:
    """Parked rows stay within their limits while rows come, leave and grow, and a dropped row is never used."""
    cache, running, there = PrefixCache(4, 40, trim_limit, count(1)), 0, set[int]()

    def do(ops: Sequence[Op]) -> None:
        for op in ops:
            if isinstance(op, Drop):
                there.discard(op.handle)
            elif isinstance(op, New | Copy):
                there.add(op.handle if isinstance(op, New) else op.into)

    for prompt in prompts:
        opened = cache.open(said(*prompt), 0)
        do(opened.ops)
        assert opened.handle in there
        do(cache.park(opened.handle, tuple(prompt), 0))
    for running in sorted(grown):
        do(cache.make_room(running))
        assert sum(len(row.tokens) for row in cache.rows) <= max(0, 40 - running)
    assert there == set(handles_of(cache))
    assert len(there) <= 4


# which rows make room


def test_the_least_recently_used_rows_make_room_for_what_runs() -> None:
    cache = cache_of([1] * 10, [2] * 5, [3] * 15, context=30)
    assert cache.open(said(*[1] * 4, 9), 0).ops == [Drop(2), Copy(4, 1), Trim(4, 6)]
    assert handles_of(cache) == [3, 1], "what was used goes last"
    assert cache.open(said(9, 9), 9).ops == [Drop(3), New(5)]
    assert handles_of(cache) == [1]


def test_an_answer_takes_the_memory_of_others_as_it_grows() -> None:
    cache = cache_of([1] * 10, [2] * 10, context=30)
    assert cache.open(said(*[9] * 10, answer=20), 0).ops == [New(3)]
    assert [cache.make_room(running) for running in (10, 11, 20, 21)] == [[], [Drop(1)], [], [Drop(2)]]


def test_a_row_that_leaves_no_room_for_its_copy_is_taken_over() -> None:
    cache = cache_of([1] * 10, [2] * 20, context=30)
    assert cache.open(said(*[1] * 5, 9, answer=20), 0) == ([Trim(1, 5)], 1, 5), "or more would be lost for it"
    assert handles_of(cache) == [2]
    cache = cache_of([1] * 10, context=20, trim_limit=0)
    assert cache.open(said(*[1] * 10, 9, answer=9), 0) == ([], 1, 10)
    assert handles_of(cache) == []


def test_a_branch_of_a_row_leaves_before_what_is_nowhere_else() -> None:
    """Two helpers of an agent have a common prefix: the second one takes the first one's row, not the agent's."""
    cache = cache_of([2] * 20, [*[1] * 18, 5, 5], context=50)
    assert cache.open(said(*[1] * 18, 6, 6), 0) == ([Trim(2, 2)], 2, 18)
    assert handles_of(cache) == [1]


@pytest.mark.parametrize(
    ("trim_limit", "parked", "ops", "reused"),
    [
        pytest.param(None, [], [Extract(1, 70, 2), Trim(1, 2)], 8, id="a part of it"),
        pytest.param(None, [TEN[:4]], [Extract(2, 70, 2), Trim(2, 2)], 8, id="rather than less of one at rest"),
        pytest.param(None, [TEN[:8]], [], 8, id="but not rather than as much"),
        pytest.param(0, [], [New(1)], 0, id="not where it cannot be cut"),
    ],
)
def test_what_runs_lends_its_beginning(
    trim_limit: int | None, parked: list[tuple[int, ...]], ops: list[Op], reused: int
) -> None:
    cache = cache_of(*parked, trim_limit=trim_limit)
    lent = Lent(TEN, partial(Extract, of=70, row=2))
    assert cache.reusable(said(*TEN[:8], 30), [lent]) == reused
    opened = cache.open(said(*TEN[:8], 30), 10, [lent])
    assert (opened.ops, opened.reused) == (ops, reused)


def test_there_are_no_more_parked_rows_than_rows_that_run() -> None:
    cache = cache_of([1] * 4, [2] * 4, rows=2)
    assert cache.park(7, (3,) * 4, 0) == [Drop(1)]
    assert handles_of(cache) == [2, 7]


@pytest.mark.parametrize(
    ("tokens", "running"),
    [
        pytest.param([5] * 3, 0, id="too short"),
        pytest.param([1] * 10, 0, id="there already"),
        pytest.param([5] * 31, 0, id="larger than the memory"),
        pytest.param([5] * 11, 20, id="larger than what runs leaves"),
    ],
)
def test_what_is_not_parked_costs_no_other_its_place(tokens: list[int], running: int) -> None:
    cache = cache_of([1] * 10, [2] * 10, context=30)
    assert cache.park(7, tuple(tokens), running) == [Drop(7)]
    assert cache.snapshot(Drop, tuple(tokens), running) == []
    assert sorted(handles_of(cache)) == [1, 2]


def test_what_is_pinned_stays_as_it_is_and_what_runs_waits_for_it() -> None:
    cache = cache_of(TEN, [2] * 10, context=30)
    cache.pin(1, 20)
    cache.pin(1, 30)
    cache.unpin(1)
    assert cache.open(said(*TEN, 7, answer=4), 0) == ([Drop(2), Copy(3, 1)], 3, 10)
    assert [cache.fits(tokens_of(said(*[9] * size)), 15) for size in (2, 3)] == [True, False]
    assert not cache.fits(tokens_of(said(*[9] * 50)), 0), "alone it would run, but it is not alone"
    cache.unpin(1)
    assert cache.fits(tokens_of(said(*[9] * 50)), 0)
    assert cache.open(said(*TEN, 7, answer=4), 0) == ([], 1, 10)
    with pytest.raises(KeyError):
        cache.pin(1, 0)
    cache.unpin(1)


def test_what_runs_may_come_to_need_is_not_pinned() -> None:
    cache = cache_of(TEN, context=30)
    with pytest.raises(Busy, match="may need the memory"):
        cache.pin(1, 21)
    assert cache.make_room(21) == [Drop(1)]


def test_a_row_from_elsewhere_is_of_use_once_it_is_settled() -> None:
    cache = cache_of([1] * 20, context=30)
    parked, ops = cache.hold(TEN, 5)
    assert (parked, ops) == (CachedPrefix(2, TEN), [Drop(1), Restore(2, 10)])
    assert handles_of(cache) == []
    assert cache.open(said(*TEN, 7), 5).reused == 0
    assert not cache.fits(tokens_of(said(*[9] * 13)), 5)
    with pytest.raises(Busy, match="leave no memory"):
        cache.hold(TEN, 11)
    cache.settle(2)
    cache.settle(2)
    assert cache.rows == (parked,)
    assert cache.open(said(*TEN, 7), 5).reused == 10


def test_what_is_given_up_is_as_if_it_had_never_been() -> None:
    cache = cache_of(TEN)
    parked, _ = cache.hold((2,) * 10, 0)
    cache.pin(1, 0)
    assert cache.lose({1, parked.handle, 77}) == [Drop(1), Drop(parked.handle)]
    cache.settle(parked.handle)
    cache.unpin(1)
    assert cache.rows == ()
    assert cache.fits(tokens_of(said(*[9] * 500)), 0)


# over a ring


def follow(head: Head, name: str, *more: int, tokens: int = 3) -> Request:
    """A second turn: the question and answer of `name`, and more."""
    history = [*head.prompts[name], *head.answers[name], *more]
    request = Request(request_id=name + "+", tokens=history, max_tokens=tokens)
    head.submit(request)
    return request


@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize("batched", [pytest.param(True, id="lanes"), pytest.param(False, id="plain")])
@pytest.mark.parametrize("trim_limit", [None, 0])
def test_a_second_turn_feeds_its_new_tokens_only(stages: int, batched: bool, trim_limit: int | None) -> None:
    head = Head(stages, chunk=100, batched=batched, trim_limit=trim_limit)
    for name in "abc":
        head.submit(ask(name, prompt=6, tokens=4))
    head.finish()
    asked = follow(head, "b", 33, 34)
    (chunk,) = [work for work in head.finish() if isinstance(work, Chunk)]
    assert list(chunk.tokens[0]) == [head.answers["b"][-1], 33], (
        "the last sampled token was never fed, the very last is"
    )
    assert head.ended["b+"].reused == 6 + 4 - 1
    assert head.answers["b+"] == alone(asked, stages)
    head.check_parked()


def test_an_edit_in_the_middle_goes_on_from_there_where_caches_are_trimmed() -> None:
    head = Head(2, chunk=100)
    head.submit(asked := ask("a", prompt=20, tokens=4))
    head.finish()
    edited = Request(request_id="b", tokens=[*asked.tokens[:10], 39, 39], max_tokens=3)
    head.submit(edited)
    assert ops_of(head.finish()) == [Copy(2, 1), Trim(2, 13)]
    assert head.ended["b"].reused == 10
    assert head.answers["b"] == alone(edited, 2)
    head.check_parked()


def test_the_rest_of_a_cached_prompt_is_read_in_the_chunks_of_a_new_one() -> None:
    head = Head(1, chunk=8)
    head.submit(asked := ask("a", prompt=6, tokens=1))
    head.finish()
    head.submit(Request(request_id="b", tokens=[*asked.tokens, *range(20)], max_tokens=1))
    chunks = [work for work in head.finish() if isinstance(work, Chunk)]
    assert [at + len(chunk.tokens[0]) for chunk in chunks for at in chunk.positions] == [8, 16, 24, 25]
    assert head.ended["b"].reused == 6


def helpers(count: int, common: int = 20) -> list[Request]:
    """Prompts with a common prefix and different ends."""
    return [
        Request(request_id=name, tokens=[*range(common), 30 + at, 39], max_tokens=30)
        for at, name in enumerate("abcdefgh"[:count])
    ]


def read(works: Sequence[object]) -> int:
    return sum(len(tokens) for work in works if isinstance(work, Chunk) for tokens in work.tokens)


@pytest.mark.parametrize("batched", [pytest.param(True, id="lanes"), pytest.param(False, id="plain")])
@pytest.mark.parametrize("trim_limit", [None, 0, 24])
def test_what_several_prompts_have_in_common_is_read_once(batched: bool, trim_limit: int | None) -> None:
    head, asked = Head(3, chunk=3, batched=batched, trim_limit=trim_limit), helpers(4)
    for request in asked:
        head.submit(request)
    assert read(head.finish()) == 20 + 4
    assert [head.ended[name].reused for name in "abcd"] == [0, 20, 20, 20]
    assert all(head.answers[r.request_id] == alone(r, 3) for r in asked)
    head.check_parked()


@pytest.mark.parametrize("rows", [2, 4])
def test_a_row_that_decodes_lends_its_prompt_between_two_steps(rows: int) -> None:
    head, asked = Head(2, chunk=3), helpers(rows)
    head.submit(asked[0])
    for _ in range(12):
        head.round()
    assert head.answers["a"]
    for request in asked[1:]:
        head.submit(request)
    assert read(head.finish()) == rows - 1
    assert all(head.answers[r.request_id] == alone(r, 2) for r in asked)
    head.check_parked()


def test_who_shares_nothing_does_not_wait_for_those_that_do() -> None:
    head = Head(1, chunk=3)
    for request in (*helpers(2, common=36), ask("z", prompt=9)):
        head.submit(request)
    head.round()
    assert [row.request_id for row in head.scheduler.batch.rows if row.state != "waiting"][:2] == ["a", "z"]
    head.finish()
    assert head.ended["b"].reused == 36


def test_where_nothing_can_be_cut_a_copy_stays_where_prompts_branch() -> None:
    head = Head(2, chunk=3, trim_limit=0)
    reused = []
    for request in helpers(3):
        head.submit(request)
        head.finish()
        reused.append(head.ended[request.request_id].reused)
        assert head.answers[request.request_id] == alone(request, 2)
    assert reused == [0, 0, 20], "the second one shows where they branch"
    head.check_parked()


def test_a_long_answer_that_is_allowed_and_not_given_costs_the_others_nothing() -> None:
    head = Head(1, chunk=100, context=200)
    for name in "abc":
        head.submit(
            Request(request_id=name, tokens=[ord(name)] * 30, max_tokens=170, eos=list(range(40)), min_tokens=3)
        )
        head.finish()
    assert len(head.scheduler.parked) == 3
    head.submit(Request(request_id="d", tokens=[1] * 30, max_tokens=170))
    head.finish()
    assert [row.tokens[0] for row in head.scheduler.parked] == [1], "one that is given takes it all"


def test_a_retokenised_answer_goes_on_from_the_end_of_the_prompt_where_caches_are_not() -> None:
    head = Head(2, chunk=100, trim_limit=0)
    head.submit(asked := ask("a", prompt=20, tokens=4))
    assert ops_of(head.finish()) == [New(1), Copy(2, 1)]
    assert head.scheduler.parked[0] == CachedPrefix(2, tuple(asked.tokens[:-1]))
    again = Request(request_id="b", tokens=[*asked.tokens, 39, 39], max_tokens=3)
    head.submit(again)
    assert ops_of(head.finish())[:1] == [Copy(3, 2)]
    assert head.ended["b"].reused == 19
    assert head.answers["b"] == alone(again, 2)
    head.check_parked()


def test_a_row_of_a_lane_is_taken_out_before_it_leaves() -> None:
    head = running(1, "abc")
    for _ in range(4):
        head.round()
    head.cancel("b")
    assert ops_of(head.round()) == [Extract(6, 3, 1), Keep(3, (0, 2))]
    head.finish()
    head.check_parked()
    assert len(head.scheduler.parked) == 3


def test_when_the_ring_is_gone_so_is_what_is_parked() -> None:
    head = Head(2)
    head.submit(ask("a", prompt=9, tokens=2))
    head.finish()
    head.scheduler.pin(head.scheduler.parked[0].handle)
    head.gone()
    assert head.scheduler.parked == ()
    head.submit(ask("b", prompt=9, tokens=2))
    head.finish()
    assert head.ended["b"].reused == 0
    head.check_parked()


def test_a_row_that_comes_from_elsewhere_is_the_next_thing_on_the_ring() -> None:
    head = running(2, "a")
    parked = head.hold(range(12))
    assert parked == CachedPrefix(2, tuple(range(12)))
    assert ops_of([work for work in [head.turn(0.0)] if work]) == [Restore(2, 12)]
    assert not head.scheduler.parked
    head.carry()
    assert head.scheduler.parked == (parked,)
    asked = Request(request_id="b", tokens=[*range(12), 5], max_tokens=3)
    head.submit(asked)
    head.finish()
    assert head.ended["b"].reused == 12
    assert head.answers["b"] == alone(asked, 2)


# guesses


def cycle(length: int) -> list[int]:
    """A prompt that repeats a cycle."""
    return [number % 4 for number in range(length)]


@pytest.mark.parametrize("stages", [1, 3])
def test_guesses_save_rounds_and_change_no_token(stages: int) -> None:
    plain, guessing = Head(stages), Head(stages, draft=8)
    asked = Request(request_id="a", tokens=cycle(12), max_tokens=60)
    for head in (plain, guessing):
        head.submit(asked)
    slow, fast = steps_of(plain.finish()), steps_of(guessing.finish())
    assert plain.answers["a"] == guessing.answers["a"] == alone(asked, stages)
    _, _, _, drafted, accepted = guessing.ended["a"]
    assert 0 < accepted < drafted
    assert len(slow) - len(fast) == accepted
    guessing.check_parked()


@pytest.mark.parametrize(
    ("trim_limit", "tokens", "most"),
    [
        pytest.param(None, 9, 4, id="as many as a draft begins with"),
        pytest.param(None, 3, 2, id="no more than the answer may have"),
        pytest.param(None, 1, 0, id="none where one token is left"),
        pytest.param(15, 9, 2, id="no more than can be trimmed again"),
        pytest.param(13, 9, 0, id="none where none could be trimmed"),
        pytest.param(0, 9, 0, id="none where nothing can be trimmed"),
    ],
)
def test_how_many_guesses_go_with_a_step(trim_limit: int | None, tokens: int, most: int) -> None:
    head = Head(2, chunk=100, draft=8, trim_limit=trim_limit)
    head.submit(Request(request_id="a", tokens=cycle(12), max_tokens=tokens))
    assert [step.drafts for step in steps_of(head.round())] == [(0, 1, 2, 3)[:most]]


def test_only_a_plain_row_that_may_is_guessed_for() -> None:
    head = Head(1, chunk=100, draft=8)
    head.submit(Request(request_id="a", tokens=cycle(12), max_tokens=9), may_draft=False)
    assert [step.drafts for step in steps_of(head.round())] == [()]
    head = Head(1, chunk=100, draft=8)
    for name in "ab":
        head.submit(Request(request_id=name, tokens=cycle(12), max_tokens=9))
    assert {step.drafts for step in steps_of(head.finish()) if len(step.requests) == 2} == {()}


@pytest.mark.parametrize("right", range(5))
def test_a_wrong_guess_is_taken_off_before_anything_else(right: int) -> None:
    head = Head(1, chunk=100, draft=4)
    scheduler = head.scheduler
    scheduler.submit(Request(request_id="a", tokens=cycle(12), max_tokens=40))
    *_, step = [scheduler.next() for _ in range(3)]
    assert isinstance(step, Step)
    assert step.drafts == (0, 1, 2, 3)
    stepped = scheduler.stepped(step, [[*step.drafts[:right], 9]])
    assert stepped == ((right + 1,), [])
    scheduler.submit(ask("b"))
    work = scheduler.next()
    assert ops_of([work] if work else [])[: right < 4] == [Trim(1, 4 - right)][: right < 4]


def test_what_was_guessed_for_a_row_that_is_over_is_taken_off_before_it_is_parked() -> None:
    head = Head(2, chunk=100, draft=4)
    head.submit(asked := Request(request_id="a", tokens=cycle(12), max_tokens=40))
    (step,) = [head.turn(0.0) for _ in range(3)][-1:]
    assert isinstance(step, Step)
    head.cancel("a")
    head.carry()
    assert head.ended["a"] == ("a", "cancelled", 0, 4, 0)
    assert head.turn(0.0) is not None
    head.carry()
    assert head.scheduler.parked == (CachedPrefix(1, tuple(asked.tokens)),)
    head.check_parked()


def test_an_answer_that_ends_among_right_guesses_ends_there() -> None:
    scheduler = Head(1, chunk=100, draft=4).scheduler
    scheduler.submit(Request(request_id="a", tokens=cycle(12), max_tokens=40, eos=[1]))
    *_, step = [scheduler.next() for _ in range(3)]
    assert isinstance(step, Step)
    taken, (ended,) = scheduler.stepped(step, [[*step.drafts, chosen(3, 1)]])
    assert (taken, ended) == ((2,), ("a", "stop", 0, 4, 1))
    work = scheduler.next()
    assert ops_of([work] if work else []) == [Trim(1, 3)]
    assert scheduler.parked == (CachedPrefix(1, (*cycle(12), 0)),)
    assert scheduler.idle
