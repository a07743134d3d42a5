"""In every topology the tokens are mlx_lm's, and no Mac sees more than the topology allows."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, cast

import jsonschema
import msgspec
import pytest

from core.constraint import Constraint
from core.engine.requests import Request
from core.events import Topology
from core.models.made.maker import EOS, SPECIALS
from core.models.text.vocabulary import read_vocabulary
from core.plan.stage_roles import sights
from core.sampling_options import Sampling
from tests.support.alone import Alone, wanders
from tests.support.cluster import Make
from tests.support.noise import noisy
from tests.support.reloading import Rings, shared_rings
from tests.support.requests import SAMPLINGS, some_requests
from tests.support.worker_ring import GREEDY, WorkerRing, a_request

CHUNK: Final = 8
LAYERS: Final = {"llama": 4, "gemma3_text": 8}
CUTS: Final = {1: (), 2: (3,), 3: (1, 3), 4: (1, 2, 3)}  # of llama
WINDOW_CUTS: Final = (3, 6)
RINGS: Final = [
    pytest.param("private", CUTS[3], "llama", id="llama-private"),
    pytest.param("forward", CUTS[3], "llama", id="llama-forward"),
    pytest.param("reverse", CUTS[3], "llama", id="llama-reverse"),
    pytest.param("private", CUTS[4], "llama", id="four-private", marks=pytest.mark.nightly),
    pytest.param("forward", CUTS[4], "llama", id="four-forward", marks=pytest.mark.nightly),
    pytest.param("reverse", CUTS[4], "llama", id="four-reverse", marks=pytest.mark.nightly),
    pytest.param("private", WINDOW_CUTS, "gemma3_text", id="windows-private", marks=pytest.mark.nightly),
    pytest.param("forward", WINDOW_CUTS, "gemma3_text", id="windows-forward", marks=pytest.mark.nightly),
    pytest.param("reverse", WINDOW_CUTS, "gemma3_text", id="windows-reverse", marks=pytest.mark.nightly),
    pytest.param("single", CUTS[1], "llama", id="single"),
]


@pytest.fixture(scope="module")
def alone(made: Make) -> dict[str, Alone]:
    return {family: Alone(made(family, layers=LAYERS[family]), CHUNK) for family in LAYERS}


@pytest.fixture(scope="module")
def rings() -> Iterator[Rings]:
    with shared_rings() as shared:
        yield shared


@pytest.mark.slow
@pytest.mark.parametrize(("topology", "cuts", "family"), RINGS)
@pytest.mark.promise("P35")
def test_answers_are_mlx_lms_and_each_mac_sees_what_its_plan_says(
    made: Make, rings: Rings, alone: dict[str, Alone], topology: Topology, cuts: Sequence[int], family: str
) -> None:
    ring = rings.ring(made(family, layers=LAYERS[family]), cuts, topology, chunk=CHUNK, rows=3)
    check_answers_and_sights(ring, alone[family])


def check_answers_and_sights(ring: WorkerRing, alone: Alone) -> None:
    macs = len(ring.workers)
    requests = some_requests(macs, 4)
    expected = [alone.answer(request) for request in requests]
    assert wanders(expected)
    answers = ring.generate_all(requests)
    assert [answer.tokens for answer in answers] == [said.tokens for said in expected]
    assert ring.sights() == [tuple(sorted(sights(ring.plan, index))) for index in range(macs)]


@pytest.fixture(scope="module")
def model(made: Make) -> Path:
    return made("llama", layers=LAYERS["llama"])


@pytest.fixture(scope="module")
def draft(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return noisy(model, tmp_path_factory.mktemp("draft"), 0.05)


@pytest.fixture(scope="module", params=["private", "forward", pytest.param("reverse", marks=pytest.mark.nightly)])
def pair(model: Path, draft: Path, rings: Rings, request: pytest.FixtureRequest) -> WorkerRing:
    ring = rings.ring(model, CUTS[2], request.param, chunk=CHUNK, rows=3, drafter=draft)
    assert ring.plan.topology == request.param
    return ring


def test_answers_of_two_macs_are_mlx_lms_too(pair: WorkerRing, alone: dict[str, Alone]) -> None:
    check_answers_and_sights(pair, alone["llama"])


def of_wires(ring: WorkerRing) -> int:
    """Bytes that its links carried for an answer."""
    (answer,) = ring.generate_all([a_request([11, 12, 13, 14], max_tokens=24)])
    return sum(sample.bytes for sample in answer.samples)


def test_hidden_states_travel_as_the_plan_says(model: Path, rings: Rings, alone: dict[str, Alone]) -> None:
    request = a_request([21, 22, 23, 24], max_tokens=12)
    carried = {}
    for wire in (None, "float32", "int8"):
        ring = rings.ring(model, CUTS[2], chunk=CHUNK, wire=wire)
        if wire != "int8":
            assert ring.generate_all([request])[0].tokens == alone["llama"].answer(request).tokens
        carried[wire] = of_wires(ring)
    assert carried["int8"] < carried[None]


@pytest.fixture
def forward(model: Path, rings: Rings) -> WorkerRing:
    return rings.ring(model, CUTS[3], "forward", chunk=CHUNK, rows=4)


def test_the_last_mac_samples_as_mlx_lm_does(forward: WorkerRing, alone: dict[str, Alone]) -> None:
    told = [
        msgspec.structs.replace(sampling, logprobs=2)
        for sampling in (cast(Sampling, param.values[0]) for param in SAMPLINGS)
    ]
    mine = [a_request([101, 102, 103, 104, 105], max_tokens=16, sampling=sampling) for sampling in told]
    for request, answer in zip(mine, forward.generate_all([*mine, *some_requests(5, 2)]), strict=False):
        expected = alone["llama"].answer(request)
        assert answer.tokens == expected.tokens, request.sampling
        for token, logprob in zip(answer.reports, expected.logprobs, strict=True):
            assert token.logprob == pytest.approx(logprob, abs=1e-3)


def test_what_the_last_mac_cannot_be_told_is_refused_and_harms_nobody(
    forward: WorkerRing, alone: dict[str, Alone]
) -> None:
    much = Sampling(logit_bias={token: 0.25 for token in range(500)}, repetition_penalty=1.1, repetition_context=12_000)
    good = a_request([9, 8, 7], max_tokens=6)
    refused, answer = forward.generate_all([a_request([300] * 12_000, max_tokens=2, sampling=much), good])
    assert refused.done.problem
    assert "too long to send" in refused.done.problem.what
    assert answer.tokens == alone["llama"].answer(good).tokens


@pytest.mark.parametrize("topology", ["forward", pytest.param("reverse", marks=pytest.mark.nightly)])
def test_a_ring_that_breaks_goes_on_where_it_was(
    model: Path, rings: Rings, alone: dict[str, Alone], topology: Topology
) -> None:
    requests = some_requests(8, 5)
    expected = [alone["llama"].answer(request).tokens for request in requests]
    ring = rings.ring(model, CUTS[3], topology, chunk=CHUNK, rows=4)
    relinks = iter([3, 9, 15])
    at = next(relinks)
    count = 0

    def relink(_: object) -> None:
        nonlocal at, count
        count += 1
        if count == at:
            at = next(relinks, 0)
            ring.relink()

    for request in requests:
        ring.send(request)
    answers = ring.collect([request.request_id for request in requests], on_token=relink)
    assert [answer.tokens for answer in answers] == expected


def test_guessed_tokens_change_no_answer(pair: WorkerRing, alone: dict[str, Alone]) -> None:
    """A prompt that repeats itself makes guesses, and its answer makes most of them wrong."""
    again = a_request([21, 22, 23, 24, 25, 26] * 4, max_tokens=40)
    biased = Sampling(logit_bias={n: 25.0 - n / 9 for n in range(20, 24)}, frequency_penalty=2.0, frequency_context=9)
    circling = a_request([21, 22, 23, 24] * 3, max_tokens=40, sampling=biased)
    seeded = a_request([31, 32, 33] * 5, max_tokens=40, sampling=Sampling(temperature=0.4, seed=5))
    drafted = accepted = 0
    for request in (again, circling, seeded):
        (answer,) = pair.generate_all([request])
        assert answer.tokens == alone["llama"].answer(request).tokens
        drafted, accepted = drafted + answer.done.drafted_tokens, accepted + answer.done.accepted_tokens
    assert drafted > accepted
    assert accepted > 0 or pair.plan.topology == "forward"


def test_guesses_of_a_draft_change_no_answer_also_where_the_ring_breaks_amid_them(
    pair: WorkerRing, alone: dict[str, Alone]
) -> None:
    greedy = a_request([41, 52, 63, 74, 85], max_tokens=36)
    seeded = a_request([31, 42, 53], max_tokens=36, sampling=Sampling(temperature=0.4, seed=5))
    for request in (greedy, seeded):
        pair.send(request)
        (answer,) = pair.collect(
            [request.request_id], on_token=lambda token: pair.relink() if token.index in (9, 30) else None
        )
        assert answer.tokens == alone["llama"].answer(request).tokens


PERSON: Final = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "size": {"enum": [1, 2.5, None]}},
    "required": ["name", "size"],
    "additionalProperties": False,
}
SHAPED: Final = Constraint(kind="json_schema", source=json.dumps(PERSON))
END: Final = SPECIALS.index(EOS)


def test_a_shape_is_kept_beside_rows_without_one_and_where_it_goes_on(
    model: Path, forward: WorkerRing, alone: dict[str, Alone]
) -> None:
    hot = [Sampling(temperature=1.0, seed=seed) for seed in range(2)]
    shaped = [shaped_request([50 + n, 60], sampling) for n, sampling in enumerate([GREEDY, *hot])]
    free = some_requests(21, 3)
    answers = forward.generate_all([request for pair in zip(shaped, free, strict=True) for request in pair])
    assert [each.tokens for each in answers[1::2]] == [alone["llama"].answer(each).tokens for each in free]
    for request, answer in zip(shaped, answers[::2], strict=True):
        assert answer.done.finish_reason == "stop"
        jsonschema.validate(json.loads(said(model, answer.tokens)), PERSON)
        (rest,) = forward.generate_all([renamed(request, written=list(answer.tokens[:5]))])
        assert rest.tokens == answer.tokens[5:]
    broken, _ = forward.generate_all([renamed(shaped[0], written=[70, 71]), free[0]])
    assert broken.done.problem


def test_what_is_forced_goes_round_at_once_and_guesses_are_such_as_may_follow(
    model: Path, rings: Rings, forward: WorkerRing
) -> None:
    long = {"type": "object", "properties": {"a_name_that_is_long_and_known": {"enum": [1, 2]}}, "maxProperties": 1}
    schema = {**long, "required": ["a_name_that_is_long_and_known"], "additionalProperties": False}
    fixed = Constraint(kind="json_schema", source=json.dumps(schema))
    again = Constraint(kind="regex", source="(ab|cd){24}")
    asked = [msgspec.structs.replace(shaped_request([9, 8], GREEDY), constraint=each) for each in (fixed, again)]
    plain = rings.ring(model, CUTS[2], chunk=CHUNK, draft=0)
    expected = [plain.generate_all([renamed(each)])[0].tokens for each in asked]
    hot = renamed(asked[0], sampling=Sampling(temperature=1.0, seed=3, logprobs=1))
    by_chance = plain.generate_all([hot])[0].reports
    drafting = rings.ring(model, CUTS[2], chunk=CHUNK)
    forced, guessed = [drafting.generate_all([each])[0] for each in asked]
    assert [forced.tokens, guessed.tokens] == expected
    assert forced.done.drafted_tokens == forced.done.accepted_tokens > len(forced.tokens) // 2
    there = [forward.generate_all([renamed(each)])[0] for each in (*asked, hot)]
    assert [each.tokens for each in there] == [*expected, tuple(token.token for token in by_chance)]
    assert [t.logprob for t in there[2].reports] == pytest.approx([t.logprob for t in by_chance], abs=1e-4)
    assert [[token for token, _ in t.top] for t in there[2].reports] == [
        [token for token, _ in t.top] for t in by_chance
    ]
    for each in (there[0], there[2]):
        assert each.done.drafted_tokens == each.done.accepted_tokens == forced.done.drafted_tokens


def shaped_request(tokens: list[int], sampling: Sampling) -> Request:
    asked = a_request(tokens, max_tokens=300, sampling=sampling, eos=[END])
    return msgspec.structs.replace(asked, constraint=SHAPED)


def renamed(request: Request, **changes: Any) -> Request:
    return msgspec.structs.replace(request, request_id=secrets.token_hex(16), **changes)


def said(model: Path, tokens: Sequence[int]) -> str:
    words, _ = read_vocabulary(model, 512)
    return b"".join(words[token] for token in tokens if token != END).decode()
