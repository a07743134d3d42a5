"""Many rows over real workers: each row's answer equals the one alone in one process, whatever other rows do."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
import pytest

from core.sampling_options import Sampling
from core.settings import QUEUE_LIMIT
from core.worker.messages import AnswerDone, Token, TraceSpan
from tests.support.alone import Alone, wanders
from tests.support.cluster import Make
from tests.support.reloading import load_again
from tests.support.requests import CHUNK, CUTS, LAYERS, SAMPLINGS, VOCABULARY, some_requests
from tests.support.search import SEARCH
from tests.support.worker_ring import WorkerRing, a_request, worker_ring

ROWS: Final = 5
ADMISSIONS: Final = min(50 * SEARCH, 500)


@pytest.fixture(scope="module")
def model(made: Make) -> Path:
    return made("llama", layers=LAYERS)


@pytest.fixture(scope="module")
def alone(model: Path) -> Alone:
    return Alone(model, CHUNK)


@pytest.fixture(scope="module")
def ring(model: Path) -> Iterator[WorkerRing]:
    with worker_ring(model, CUTS, chunk=CHUNK, rows=ROWS) as made:
        yield made


@pytest.mark.slow
def test_fifty_random_arrivals_over_three_workers_say_what_each_says_alone(ring: WorkerRing, alone: Alone) -> None:
    requests = some_requests(1, 50)
    expected = [alone.answer(request) for request in requests]
    assert wanders(expected)
    last = {r.request_id: len(said.tokens) - 1 for r, said in zip(requests, expected, strict=True)}
    waiting, dice = list(requests), random.Random(2)
    ended = 0

    def more_come(token: Token) -> None:
        nonlocal ended
        ended += token.index == last[token.request_id]
        under_way = len(requests) - len(waiting) - ended
        for _ in range(min(dice.choice((0, 0, 0, 1, 2)), ROWS + QUEUE_LIMIT - under_way) or under_way == 0):
            if waiting:
                ring.send(waiting.pop(0))

    for _ in range(3):
        ring.send(waiting.pop(0))
    answers = ring.collect([request.request_id for request in requests], on_token=more_come)
    assert [answer.tokens for answer in answers] == [said.tokens for said in expected]
    for request, answer in zip(requests, answers, strict=True):
        assert answer.done.finish_reason == ("stop" if answer.tokens[-1] in request.eos else "length")
    again = ring.generate(requests[0].tokens, max_tokens=requests[0].max_tokens, eos=requests[0].eos)
    assert again.tokens[: len(expected[0].tokens)] == expected[0].tokens[: len(again.tokens)], "drained and readmitted"


@pytest.mark.slow
def test_a_cancelled_row_leaves_and_the_others_do_not_notice(ring: WorkerRing, alone: Alone) -> None:
    requests = some_requests(3, ROWS + QUEUE_LIMIT)
    expected = [alone.answer(request).tokens for request in requests]
    dice = random.Random(4)
    at = {r.request_id: dice.randrange(r.max_tokens) for r in requests[::2]}
    unheard = {r.request_id for r in requests[::6]}  # cancelled while it waits or reads its prompt
    for request in requests:
        ring.send(request)
    for request_id in unheard:
        ring.cancel(request_id)

    def maybe(token: Token) -> None:
        if at.get(token.request_id) == token.index:
            ring.cancel(token.request_id)

    answers = ring.collect([r.request_id for r in requests], on_token=maybe)
    for request, answer, tokens in zip(requests, answers, expected, strict=True):
        if request.request_id in unheard:
            assert answer.done.finish_reason == "cancelled"
        if answer.done.finish_reason == "cancelled":
            assert request.request_id in at
            assert answer.tokens == tokens[: len(answer.tokens)]
        else:
            assert answer.tokens == tokens


@pytest.mark.slow
@pytest.mark.search
def test_admissions_between_the_steps_of_a_row_keep_the_sequence(ring: WorkerRing, alone: Alone) -> None:
    long = a_request([101, 102, 103], max_tokens=ADMISSIONS + ADMISSIONS // 5)
    short = [a_request([n % 400 + 20, 30], max_tokens=1 + n % 3) for n in range(ADMISSIONS)]
    waiting = list(short)

    def next_one(token: Token) -> None:
        if waiting and token.request_id == long.request_id:
            ring.send(waiting.pop(0))

    ring.send(long)
    (answer,) = ring.collect([long.request_id], on_token=next_one)
    assert not waiting
    assert answer.tokens == alone.answer(long).tokens
    last = a_request([5, 6, 7, 8], max_tokens=12)
    assert ring.generate_all([last])[0].tokens == alone.answer(last).tokens


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_sampling_over_the_ring_is_mlx_lms_for_the_same_seed(
    ring: WorkerRing, alone: Alone, sampling: Sampling
) -> None:
    told = msgspec.structs.replace(sampling, logprobs=3)
    mine = a_request([101, 102, 103, 104, 105], max_tokens=24, sampling=told)
    others = some_requests(5, 3)
    answer = ring.generate_all([others[0], mine, *others[1:]])[1]
    expected = alone.answer(mine)
    assert wanders([expected])
    assert answer.tokens == expected.tokens
    for token, logprob in zip(answer.reports, expected.logprobs, strict=True):
        assert token.logprob == pytest.approx(logprob, abs=1e-3)
        assert len(token.top) == 3
        assert [p for _, p in token.top] == sorted((p for _, p in token.top), reverse=True)


def test_the_window_changes_no_logit_and_is_never_exceeded(model: Path) -> None:
    prompt = [104_729 * (n + 1) ** 2 % VOCABULARY for n in range(101)]
    told = {}
    with worker_ring(model, CUTS, chunk=CHUNK, window=1, adapts=False) as narrow:
        for window in (1, 2, len(CUTS) + 1):
            narrow.plan = msgspec.structs.replace(narrow.plan, plan_gen=narrow.plan.plan_gen + 1, window=window)
            load_again(narrow, model)
            request = a_request(prompt, max_tokens=8, sampling=Sampling(logprobs=5))
            (answer,) = narrow.generate_all([request])
            told[window] = [(t.token, t.logprob, t.top) for t in answer.reports]
            assert most_under_way(*narrow.traces()) <= window
    assert told[1] == told[2] == told[3]


def most_under_way(head: Sequence[TraceSpan], *others: Sequence[TraceSpan]) -> int:
    """The most chunks that the head had begun and the last stage had not finished."""
    begun = {span.step: span.start_s for span in head if span.kind == "chunk"}
    ended = {span.step: span.end_s for span in others[-1] if span.kind == "chunk"}
    assert len(begun) == len(ended) == 13
    return max(sum(begun[other] <= at < ended[other] for other in begun) for at in begun.values())


def test_lanes_let_the_stages_compute_at_the_same_time(ring: WorkerRing) -> None:
    ring.traces()
    ring.generate_all([a_request([n + 20, n + 30], max_tokens=40) for n in range(4)])
    head, *others = [[s for s in spans if s.kind == "step"] for spans in ring.traces()]
    assert len({span.handle for span in head}) >= len(CUTS) + 1
    assert all(a.end_s <= b.start_s for spans in (head, *others) for a, b in pairwise(spans)), "one thing at a time"
    together = sum(mine.start_s < theirs.end_s and theirs.start_s < mine.end_s for mine in head for theirs in others[0])
    assert together >= 10


def test_a_request_that_cannot_run_is_answered_and_harms_nobody(ring: WorkerRing, alone: Alone) -> None:
    good = a_request([9, 8, 7], max_tokens=6)
    bad = [
        a_request([VOCABULARY], max_tokens=6),
        a_request([], max_tokens=6),
        a_request([1], max_tokens=6, sampling=Sampling(temperature=1.0, top_k=VOCABULARY)),
    ]
    answers = ring.generate_all([*bad, good])
    assert all(answer.done.finish_reason == "error" and answer.done.problem for answer in answers[:3])
    assert isinstance(answers[3].done, AnswerDone)
    assert answers[3].tokens == alone.answer(good).tokens
