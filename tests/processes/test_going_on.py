"""Real workers continue a partly written answer, restarted or not: the tokens equal an undisturbed answer."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, cast

import msgspec
import pytest

from core.engine.requests import Request
from core.events import Topology
from core.sampling_options import Sampling
from core.worker.messages import AnswerDone, Load, Loaded, Token
from tests.support.alone import Alone, ReferenceAnswer, wanders
from tests.support.cluster import Make
from tests.support.kinds import Kind, model_of
from tests.support.reloading import Rings, shared_rings
from tests.support.requests import SAMPLINGS
from tests.support.wires import before, wire
from tests.support.worker_ring import ANSWER_S, LINK_S, WorkerRing, a_request, worker_ring

CHUNK: Final = 8
LAYERS: Final = 4
CUTS: Final = (1, 3)
ROWS: Final = 4
ANSWER: Final = 24
VOCABULARY: Final = 200  # of the smallest model
TRY_S: Final = 0.8
SETTINGS: Final = [Sampling(), *(cast(Sampling, param.values[0]) for param in SAMPLINGS)]
TOPOLOGIES: Final = [pytest.param("private", id="private"), pytest.param("forward", id="forward")]


def folder_of(family: str, made: Make) -> Path:
    return made("llama", layers=LAYERS) if family == "llama" else model_of(Kind(family), made)


@pytest.fixture(scope="module")
def rings() -> Iterator[Rings]:
    with shared_rings() as shared:
        yield shared


@pytest.fixture(scope="module")
def alone(made: Make) -> Callable[[str], Alone]:
    models: dict[str, Alone] = {}

    def model(family: str) -> Alone:
        if family not in models:
            models[family] = Alone(folder_of(family, made), CHUNK)
        return models[family]

    return model


@pytest.fixture(params=TOPOLOGIES)
def ring(made: Make, rings: Rings, request: pytest.FixtureRequest) -> WorkerRing:
    return rings.ring(folder_of("llama", made), CUTS, request.param, chunk=CHUNK, rows=ROWS)


def some_requests(seed: int, count: int, settings: Sequence[Sampling] = SETTINGS) -> list[Request]:
    """Requests of random lengths, sampled in every way."""
    dice = random.Random(seed)
    return [
        a_request(
            dice.choices(range(8, VOCABULARY), k=dice.randint(1, 40)),
            max_tokens=ANSWER,
            min_tokens=dice.randrange(ANSWER),
            eos=dice.sample(range(8, VOCABULARY), 9),
            sampling=settings[number % len(settings)],
        )
        for number in range(count)
    ]


def behind(request: Request, written: Sequence[int]) -> Request:
    return msgspec.structs.replace(request, written=list(written))


def go_on(ring: WorkerRing, requests: Sequence[Request], written: Sequence[Sequence[int]]) -> list[Request]:
    """Continue each request after its written tokens."""
    begun = [behind(request, tokens) for request, tokens in zip(requests, written, strict=True)]
    for request in begun:
        ring.send(request)
    return begun


def some_of(expected: Sequence[ReferenceAnswer], seed: int) -> list[tuple[int, ...]]:
    """The first tokens of each answer: at least one, not all."""
    dice = random.Random(seed)
    return [said.tokens[: dice.randrange(1, len(said.tokens))] for said in expected]


def check_rest(ring: WorkerRing, begun: Sequence[Request], expected: Sequence[ReferenceAnswer]) -> None:
    """Check that the rest of each answer comes, with the right counts."""
    answers = ring.collect([request.request_id for request in begun])
    for request, answer, said in zip(begun, answers, expected, strict=True):
        written, whole = len(request.written), len(said.tokens)
        assert (*request.written, *answer.tokens) == said.tokens
        assert [token.index for token in answer.reports] == list(range(written, whole))
        assert (answer.done.prompt_tokens, answer.done.tokens) == (len(request.tokens), whole)
        assert answer.done.finish_reason == request.end(whole, said.tokens[-1])


def test_other_workers_go_on_with_an_answer(ring: WorkerRing, alone: Callable[[str], Alone]) -> None:
    requests = some_requests(1, 12)
    expected = [alone("llama").answer(request) for request in requests]
    assert wanders(expected)
    check_rest(ring, go_on(ring, requests, some_of(expected, 2)), expected)


@pytest.mark.parametrize(
    ("family", "topology"),
    [
        pytest.param("gemma3_text", "private", id="windows-private", marks=pytest.mark.nightly),
        pytest.param("gemma3_text", "forward", id="windows-forward"),
        pytest.param("qwen3_next", "private", id="states-private"),
        pytest.param("qwen3_next", "forward", id="states-forward", marks=pytest.mark.nightly),
    ],
)
def test_caches_that_are_never_trimmed_are_read_up_to_where_they_were(
    made: Make, rings: Rings, alone: Callable[[str], Alone], family: str, topology: Topology
) -> None:
    requests = some_requests(3, 2 * ROWS, SETTINGS[:2])
    expected = [alone(family).answer(request) for request in requests]
    assert wanders(expected)
    ring = rings.ring(folder_of(family, made), (3, 6), topology, chunk=CHUNK, rows=ROWS)
    check_rest(ring, go_on(ring, requests, some_of(expected, 4)), expected)


def test_an_answer_that_is_written_to_its_end_costs_the_ring_nothing(
    ring: WorkerRing, alone: Callable[[str], Alone]
) -> None:
    requests = some_requests(5, 3)
    expected = [alone("llama").answer(request) for request in requests]
    ring.traces()
    check_rest(ring, go_on(ring, requests, [said.tokens for said in expected]), expected)
    assert ring.traces() == [[], [], []]


def test_a_row_that_is_cancelled_and_asked_for_again_at_once_goes_on(
    ring: WorkerRing, alone: Callable[[str], Alone]
) -> None:
    """While others run, its end is reported at once, with its last step still on the ring."""
    requests = some_requests(6, ROWS, SETTINGS[1:])
    expected = [alone("llama").answer(request).tokens for request in requests]
    said: dict[str, list[int]] = {request.request_id: [] for request in requests}
    (mine, *_), under_way, lives = said, set(said), 1
    for request in requests:
        ring.send(request)
    while under_way:
        match ring.workers[0].next(ANSWER_S).report:
            case Token(request_id=request_id, index=index, token=token):
                assert index == len(said[request_id])
                said[request_id].append(token)
                if request_id == mine and index % 5 == 3:
                    ring.cancel(mine)
            case AnswerDone(request_id=request_id, finish_reason="cancelled"):
                ring.send(behind(requests[0], said[request_id]))
                lives += 1
            case AnswerDone(request_id=request_id):
                under_way.remove(request_id)
    assert lives >= 3
    assert [tuple(tokens) for tokens in said.values()] == expected


def test_where_a_stage_has_lost_its_caches_the_same_requests_go_on(
    made: Make, ring: WorkerRing, alone: Callable[[str], Alone]
) -> None:
    requests = some_requests(7, ROWS + 2)
    expected = [alone("llama").answer(request) for request in requests]

    def forget(token: Token) -> None:
        if (token.request_id, token.index) == (requests[0].request_id, 4):
            ring.workers[1].send(Load(plan=ring.plan, index=1, directory=str(folder_of("llama", made))))
            ring.workers[1].expect(Loaded, LINK_S)

    for request in requests:
        ring.send(request)
    broken = ring.collect([request.request_id for request in requests], on_token=forget)
    assert {answer.done.problem.kind for answer in broken if answer.done.problem} == {"CachesLost"}
    check_rest(ring, go_on(ring, requests, [answer.tokens for answer in broken]), expected)


def test_where_nobody_answers_the_same_requests_wait_for_new_links_and_go_on(
    made: Make, alone: Callable[[str], Alone]
) -> None:
    model, requests = folder_of("llama", made), some_requests(8, ROWS + 2)
    expected = [alone("llama").answer(request) for request in requests]
    is_silent = False
    with (
        wire(lambda _: "hold" if is_silent else "pass") as dead,
        worker_ring(model, CUTS[1:], chunk=CHUNK, rows=ROWS, reroute=before(1, dead), try_s=TRY_S) as ring,
    ):

        def go_silent(token: Token) -> None:
            nonlocal is_silent
            is_silent |= (token.request_id, token.index) == (requests[0].request_id, 4)

        for request in requests:
            ring.send(request)
        broken = ring.collect([request.request_id for request in requests], on_token=go_silent)
        assert {answer.done.problem.kind for answer in broken if answer.done.problem} == {"NoAnswer"}
        begun = go_on(ring, requests, [answer.tokens for answer in broken])
        is_silent = False
        dead.release()
        ring.relink()
        check_rest(ring, begun, expected)
