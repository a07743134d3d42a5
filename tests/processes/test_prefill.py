"""A prefill Mac reads prompts for a ring of real workers, for every kind of caches."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import Final

import pytest

from core.engine.requests import Request
from core.events import Topology
from core.worker.messages import AnswerDone, PrefillBroken, Prefilled, ReadBeside, Report, Token
from tests.support.alone import Alone
from tests.support.cluster import Make
from tests.support.kinds import Kind, model_of
from tests.support.worker_ring import WorkerRing, a_request, worker_ring

ANSWER_S: Final = 120.0
CHUNK: Final = 32
PROMPT: Final = [8 + (7 * n) % 190 for n in range(150)]
TOKENS: Final = 24


def heard(ring: WorkerRing, request: Request) -> Iterator[Report]:
    """All reports of the head about a request."""
    ring.workers[0].send(request)
    while True:
        report = ring._next(perf_counter() + ANSWER_S).report
        yield report
        if isinstance(report, AnswerDone):
            return


@pytest.mark.parametrize(
    ("family", "cuts", "topology"),
    [
        pytest.param("llama", (), "private", id="alone"),
        pytest.param("gemma3_text", (2, 3), "private", id="windows", marks=pytest.mark.nightly),
        pytest.param("qwen3_next", (4,), "private", id="states", marks=pytest.mark.nightly),
        pytest.param("deepseek_v41", (4,), "private", id="own caches", marks=pytest.mark.nightly),
        pytest.param("llama", (2,), "forward", id="forward", marks=pytest.mark.nightly),
        pytest.param("llama", (2,), "reverse", id="reverse", marks=pytest.mark.nightly),
    ],
)
def test_the_tokens_are_those_of_one_process(
    made: Make, family: str, cuts: tuple[int, ...], topology: Topology
) -> None:
    model = model_of(Kind(family), made)
    request = a_request(PROMPT, max_tokens=TOKENS, min_tokens=TOKENS)
    with worker_ring(model, cuts, topology=topology, chunk=CHUNK, rows=2, prefill=100) as ring:
        told = list(heard(ring, request))
        short = list(heard(ring, a_request(PROMPT[:40], max_tokens=1)))
    done = told[-1]
    assert isinstance(done, AnswerDone)
    assert done.problem is None
    assert tuple(each.token for each in told if isinstance(each, Token)) == Alone(model, CHUNK).answer(request).tokens
    assert [each.tokens for each in told if isinstance(each, ReadBeside)] == [len(PROMPT) - 1]
    assert (done.beside_tokens, done.reused_tokens) == (len(PROMPT) - 1, 0)
    assert not any(isinstance(each, ReadBeside) for each in short)


def test_an_answer_is_stopped_while_its_prompt_is_read_and_others_go_on_also_when_the_reader_is_lost(
    made: Make,
) -> None:
    model = made("llama", layers=4)
    first, second, third, fourth = (
        a_request([*prompt, tail], max_tokens=TOKENS, min_tokens=TOKENS)
        for prompt in (PROMPT, PROMPT[::-1])
        for tail in (9, 10)
    )
    alone = Alone(model, CHUNK)
    with worker_ring(model, (2,), chunk=8, rows=3, prefill=100) as ring:
        ring.send(first)
        ring.send(second)  # the ring reads this one meanwhile
        ring.cancel(first.request_id)
        stopped, whole = ring.collect([first.request_id, second.request_id])
        assert (stopped.done.finish_reason, stopped.tokens) == ("cancelled", ())
        assert whole.tokens == alone.answer(second).tokens
        assert ring.prefill_worker
        told: list[Report] = []
        for report in heard(ring, third):
            told.append(report)
            if isinstance(report, Prefilled) and ring.prefill_worker.is_alive:
                ring.prefill_worker.kill()
        assert tuple(each.token for each in told if isinstance(each, Token)) == alone.answer(third).tokens
        assert [each.tokens for each in told if isinstance(each, ReadBeside)] == [0]
        assert any(isinstance(each, PrefillBroken) for each in told)
        assert ring.generate(fourth.tokens, max_tokens=TOKENS).tokens == alone.answer(fourth).tokens
