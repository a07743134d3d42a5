"""Ranks in real workers, over the sealed group: the tokens are mlx_lm's, and the loss of a rank ends the others."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Any, Final

import msgspec
import pytest

from core.engine.requests import Request
from core.errors import MaclusterError
from core.link.rekey_limits import KEY_LIMITS
from core.plan.all_reduce import is_gathered
from core.plan.stage_roles import sights
from core.sampling_options import Sampling
from core.worker.messages import GroupBroken, Prefilled, Prove, Proved, SaveSession, SessionFailed, Token, Unproved
from tests.support.alone import Alone, wanders
from tests.support.cluster import Make
from tests.support.kinds import of_atlas
from tests.support.processes import gone
from tests.support.requests import CHUNK, some_requests
from tests.support.search import SEARCH
from tests.support.worker_ring import WorkerRing, a_request, worker_ring

SHAPE: Final = {"layers": 4, "hidden": 64, "intermediate": 256, "heads": 8, "kv_heads": 4, "head_dim": 8}
FAMILIES: Final = [
    pytest.param("llama", 2, {"bits": 4}, marks=pytest.mark.nightly),
    *(
        pytest.param(name, 2, {}, marks=pytest.mark.nightly)
        for name in ("qwen3", "qwen3_moe", "mistral3", "deepseek_v3")
    ),
    pytest.param("gpt_oss", 2, {}, marks=pytest.mark.nightly),
    pytest.param("llama", 4, {}, marks=pytest.mark.nightly),
    ("qwen3_5", 2, {"vocab_size": 512}),  # its output head is divided, too
]
FEW_FRAMES: Final = msgspec.structs.replace(KEY_LIMITS, frames=60)
WAIT_S: Final = 120.0
ENDED_S: Final = 60.0


@pytest.fixture(scope="module")
def model(made: Make) -> Path:
    return made("llama", **SHAPE)


@pytest.fixture(scope="module")
def alone(model: Path) -> Alone:
    return Alone(model, CHUNK)


@pytest.fixture(scope="module")
def ring(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerRing]:
    """A ring whose links, also those of the group, get new keys again and again."""
    references = tmp_path_factory.mktemp("logits")
    with worker_ring(model, (), ranks=2, chunk=CHUNK, rows=4, key_limits=FEW_FRAMES, references=references) as made:
        yield made


def forwards(ring: WorkerRing) -> list[Counter[str]]:
    """Counts of each rank's recent forwards; all ranks must have computed the same steps."""
    spans = [[span for span in spans if span.kind != "compose"] for spans in ring.traces()]
    steps = [[(span.step, span.kind) for span in each] for each in spans]
    assert all(each == steps[0] for each in steps)
    return [Counter(span.kind for span in each) for each in spans]


@pytest.mark.parametrize(
    ("prompt", "most", "ends"),
    [
        pytest.param((5, 6, 7, 8), 5, "never", id="five"),
        pytest.param((5, 6, 7), 3, "never", id="three"),
        pytest.param((5, 6), 5, "at once", id="ends-at-once"),
        pytest.param((7, 11, 13), 2, "never", id="two"),
        pytest.param((7, 11, 13), 1, "never", id="one"),
    ],
)
def test_every_rank_takes_as_many_forwards_as_there_are_tokens_and_no_more(
    ring: WorkerRing, alone: Alone, prompt: tuple[int, ...], most: int, ends: str
) -> None:
    expected = alone.answer(a_request(prompt, max_tokens=most)).tokens
    eos = expected[:1] if ends == "at once" else ()
    forwards(ring)
    for _ in range(2):
        answer = ring.generate(prompt, max_tokens=most, eos=eos)
        assert answer.tokens == (expected[:1] if eos else expected)
        assert answer.done.finish_reason == ("stop" if eos else "length")
    # a prompt takes one more for all but its last token
    assert forwards(ring) == [Counter(chunk=2, step=2 * len(answer.tokens))] * 2


def test_answers_are_mlx_lms_in_a_batch_with_some_that_are_cancelled(ring: WorkerRing, alone: Alone) -> None:
    requests = some_requests(3, 8)
    expected = [alone.answer(request).tokens for request in requests]
    given_up = [a_request([100 + number, 101, 102], max_tokens=400) for number in range(2)]

    def cancel(token: Token) -> None:
        if token.index == 2 and token.request_id in {request.request_id for request in given_up}:
            ring.cancel(token.request_id)

    for request in [*given_up, *requests]:
        ring.send(request)
    answers = ring.collect([request.request_id for request in (*requests, *given_up)], on_token=cancel)
    assert [answer.tokens for answer in answers[:8]] == expected
    assert [answer.done.finish_reason for answer in answers[8:]] == ["cancelled"] * 2
    assert ring.sights() == [tuple(sorted(sights(ring.plan, index))) for index in range(2)]


@pytest.mark.skipif(sys.platform != "linux", reason="two loopback addresses, which only Linux has")
def test_ranks_whose_sums_need_no_python_go_ahead_and_say_the_same(
    model: Path, alone: Alone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step starts before any process knows its tokens; one that ends at an end token costs one more forward."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "support" / "direct_ring"))
    requests = [
        *some_requests(3, 4, answer=12),
        a_request((5, 6, 7), max_tokens=16, sampling=Sampling(temperature=0.9, seed=3)),
    ]
    given_up = a_request((100, 101, 102), max_tokens=400)
    with worker_ring(model, (), ranks=2, group="nccl", chunk=CHUNK, rows=4) as ring:
        first = ring.generate((5, 6, 7), max_tokens=12)
        assert first.tokens == alone.answer(a_request((5, 6, 7), max_tokens=12)).tokens
        forwards(ring)
        ended = ring.generate((5, 6, 7), max_tokens=12, eos=first.tokens[3:4])
        assert ended.tokens == first.tokens[:4]
        assert [each["step"] for each in forwards(ring)] == [len(ended.tokens) + 1] * 2

        def cancel(token: Token) -> None:
            if token.index == 2 and token.request_id == given_up.request_id:
                ring.cancel(token.request_id)

        asked = [given_up, *requests]
        for request in asked:
            ring.send(request)
        answers = ring.collect([request.request_id for request in asked], on_token=cancel)
    assert answers[0].done.finish_reason == "cancelled"
    assert [answer.tokens for answer in answers[1:]] == [alone.answer(request).tokens for request in requests]


def test_a_conversation_goes_on_where_it_was(ring: WorkerRing, alone: Alone) -> None:
    first = a_request(range(200, 230), max_tokens=6)
    said = ring.generate_all([first])[0].tokens
    second = a_request([*first.tokens, *said, 301, 302], max_tokens=6)
    answer = ring.generate_all([second])[0]
    assert answer.done.reused_tokens > len(first.tokens)
    assert answer.tokens == alone.answer(second).tokens


def test_guesses_change_no_answer(ring: WorkerRing, alone: Alone) -> None:
    request = a_request([21, 22, 23, 24, 25, 26] * 4, max_tokens=24)
    (answer,) = ring.generate_all([request])
    assert answer.tokens == alone.answer(request).tokens
    assert answer.done.drafted_tokens > 0


def test_three_ranks_add_up_long_chunks_piece_by_piece(made: Make) -> None:
    """The sum of such a chunk is larger than three ranks would gather, unlike that of one token."""
    chunk = 256
    directory = made("llama", layers=2, hidden=96, intermediate=192, heads=6, kv_heads=6, head_dim=16)
    assert not is_gathered(96 * 4 * chunk, 3)
    request = a_request([8 + number % 300 for number in range(2 * chunk)], max_tokens=8)
    with worker_ring(directory, (), ranks=3, chunk=chunk) as ring:
        assert answered(ring, request) == Alone(directory, chunk).answer(request).tokens


def test_the_whole_model_proves_the_ranks(ring: WorkerRing) -> None:
    ring.workers[0].send(Prove(plan_gen=ring.plan.plan_gen))
    while not isinstance(said := ring.workers[0].next(WAIT_S).report, Proved | Unproved):
        pass
    assert isinstance(said, Proved)
    assert said.difference is not None
    assert said.difference < 1e-3


def test_a_session_that_lies_in_parts_is_not_saved(ring: WorkerRing) -> None:
    order = SaveSession(path="/nowhere", secret=b"", tokens=[1], messages=(), created_at=0.0)
    ring.workers[0].send(order)
    assert "part of each layer" in ring.workers[0].expect(SessionFailed, WAIT_S).problem.what


@pytest.mark.search
@pytest.mark.parametrize("seed", range(2 * SEARCH))
def test_who_loses_a_rank_at_any_moment_says_so_and_ends(model: Path, seed: int) -> None:
    dice = random.Random(seed)
    with worker_ring(model, (), ranks=2, chunk=CHUNK) as ring:
        ring.send(a_request(range(8, 108), max_tokens=4000))
        if dice.random() < 0.8:
            ring.workers[0].expect(Prefilled, WAIT_S)
        sleep(dice.uniform(0, 0.2))
        left, lost = ring.workers if seed % 2 == 0 else reversed(ring.workers)
        os.kill(lost.pid, signal.SIGKILL)
        assert left.expect(GroupBroken, ENDED_S).problem.what
        gone([left.pid, lost.pid], ENDED_S)


def answered(ring: WorkerRing, request: Request) -> tuple[int, ...]:
    """The tokens of a request that runs alone on the ring."""
    return ring.generate_all([request])[0].tokens


def given_up(ring: WorkerRing, requests: list[Request]) -> list[tuple[int, ...]]:
    """Answers to all requests at once, next to two that are cancelled."""
    others = {request.request_id: request for request in (a_request([100 + n, 101], max_tokens=400) for n in (1, 2))}

    def cancel(token: Token) -> None:
        if token.request_id in others and token.index == 2:
            ring.cancel(token.request_id)

    for request in (*others.values(), *requests):
        ring.send(request)
    answers = ring.collect([*(r.request_id for r in requests), *others], on_token=cancel)
    assert [answer.done.finish_reason for answer in answers[-2:]] == ["cancelled"] * 2
    return [answer.tokens for answer in answers[:-2]]


def broken_off(ring: WorkerRing, requests: list[Request], after: int) -> list[Request]:
    """Kill a rank after `after` tokens; returns the requests to continue, with their written tokens."""
    written: dict[str, list[int]] = {request.request_id: [] for request in requests}

    def kill(token: Token) -> None:
        written[token.request_id].append(token.token)
        if sum(map(len, written.values())) == after:
            os.kill(ring.workers[-1].pid, signal.SIGKILL)

    with pytest.raises(MaclusterError):
        ring.generate_all(requests, on_token=kill)
    return [msgspec.structs.replace(request, written=written[request.request_id]) for request in requests]


@pytest.mark.slow
@pytest.mark.search
@pytest.mark.parametrize(("family", "ranks", "more"), FAMILIES)
def test_families_answer_as_mlx_lm_does(made: Make, family: str, ranks: int, more: dict[str, Any]) -> None:
    """One row, then several with cancelled ones; `make search` uses longer answers and kills a rank in the middle."""
    far = SEARCH > 1
    directory = of_atlas(family, made, **more) if family == "qwen3_5" else made(family, **SHAPE, **more)
    alone = Alone(directory, CHUNK)
    requests = [a_request(range(8 + n, 20 + 3 * n), max_tokens=256 if far else 12) for n in range(9 if far else 3)]
    expected = [alone.answer(request) for request in requests]
    assert wanders(expected)
    first, *others = (said.tokens for said in expected)
    with worker_ring(directory, (), ranks=ranks, chunk=CHUNK, rows=10) as ring:
        assert answered(ring, requests[0]) == first
        assert given_up(ring, requests[1:]) == others
        rest = broken_off(ring, requests[1:], after=800) if far else []
    if far:
        with worker_ring(directory, (), ranks=ranks, chunk=CHUNK, rows=10) as again:
            answers = again.generate_all(rest)
        assert [(*r.written, *answer.tokens) for r, answer in zip(rest, answers, strict=True)] == others
