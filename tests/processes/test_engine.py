"""Rows over real workers: each answer equals the one alone in one process, whatever the others do.

Frames may be lost, repeated or late, and a partly written answer may go on after a loss.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Final, cast

import msgspec
import pytest

from core.engine.requests import Request
from core.events import Topology
from core.sampling_options import Sampling
from core.settings import QUEUE_LIMIT
from core.worker.messages import AnswerDone, Load, Loaded, Token, TraceSpan
from tests.support.alone import Alone, ReferenceAnswer, wanders
from tests.support.cluster import Make
from tests.support.kinds import of_atlas
from tests.support.reloading import Rings, shared_rings
from tests.support.requests import CHUNK, CUTS, LAYERS, SAMPLINGS, VOCABULARY, some_requests
from tests.support.search import SEARCH
from tests.support.wires import Fault, Wire, wire
from tests.support.worker_ring import ANSWER_S, LINK_S, WorkerRing, a_request

pytestmark = pytest.mark.slow

ROWS: Final = 5
ADMISSIONS: Final = min(30 * SEARCH, 500)
PATIENT_S: Final = 30.0
LATE_S: Final = 0.4
SILENT_S: Final = 0.8
HANDSHAKE: Final = 8  # records of a connection before the first frame, at most
ANSWER: Final = 16
SMALLEST: Final = 200  # vocabulary of the smallest model
SETTINGS: Final = [Sampling(), *(cast(Sampling, param.values[0]) for param in SAMPLINGS)]
TOPOLOGIES: Final = ["private", pytest.param("forward", marks=pytest.mark.nightly)]


@pytest.fixture(scope="module")
def model(made: Make) -> Path:
    return made("llama", layers=LAYERS)


@pytest.fixture(scope="module")
def alone(model: Path) -> Alone:
    return Alone(model, CHUNK)


@pytest.fixture(scope="module")
def hops() -> Iterator[list[Wire]]:
    with ExitStack() as stack:
        yield [stack.enter_context(wire(passes)) for _ in range(len(CUTS) + 1)]


@pytest.fixture(scope="module")
def rings(hops: list[Wire]) -> Iterator[Rings]:
    with shared_rings(lambda stage, port: hops[stage].before(port)) as shared:
        yield shared


@pytest.fixture
def ring(rings: Rings, model: Path) -> WorkerRing:
    return rings.ring(model, CUTS, chunk=CHUNK, rows=ROWS)


@pytest.fixture
def wires(hops: list[Wire]) -> Iterator[list[Wire]]:
    """A wire before each stage of the ring; it passes everything on unless the test has it do otherwise."""
    yield hops
    for hop in hops:
        hop.release()
        hop.judge_by(passes)


def passes(_: int) -> Fault:
    return "pass"


def test_random_arrivals_over_three_workers_say_what_each_says_alone(ring: WorkerRing, alone: Alone) -> None:
    requests = some_requests(1, 15)
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


def test_clients_with_high_limits_write_at_the_same_time(rings: Rings, model: Path, alone: Alone) -> None:
    """Together they need more memory than there is: the second row is displaced. Another Mac samples it again then."""
    sampling = Sampling(repetition_penalty=1.4, repetition_context=30)
    prompts = [range(8 + 20 * number, 28 + 20 * number) for number in range(2)]
    requests = [a_request(tokens, max_tokens=300, sampling=sampling) for tokens in prompts]
    ring = rings.ring(model, CUTS, "forward", chunk=CHUNK, rows=ROWS, context=560)
    first, second = answers = ring.generate_all(requests)
    assert [answer.tokens for answer in answers] == [alone.answer(request).tokens for request in requests]
    assert 200 < sum(at < first.times[-1] for at in second.times) < 290


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


def test_sampling_over_the_ring_is_mlx_lms_for_the_same_seed(ring: WorkerRing, alone: Alone) -> None:
    requests = [
        a_request([101, 102, 103, 104, 105], max_tokens=16, sampling=msgspec.structs.replace(sampling, logprobs=3))
        for sampling in SETTINGS
    ]
    expected = [alone.answer(request) for request in requests]
    assert wanders(expected)
    for answer, said in zip(ring.generate_all(requests), expected, strict=True):
        assert answer.tokens == said.tokens
        for token, logprob in zip(answer.reports, said.logprobs, strict=True):
            assert token.logprob == pytest.approx(logprob, abs=1e-3)
            assert len(token.top) == 3
            assert [p for _, p in token.top] == sorted((p for _, p in token.top), reverse=True)


def test_the_window_changes_no_logit_and_is_never_exceeded(rings: Rings, model: Path) -> None:
    prompt = [104_729 * (n + 1) ** 2 % VOCABULARY for n in range(101)]
    told = {}
    for window in (1, 2, len(CUTS) + 1):
        ring = rings.ring(model, CUTS, chunk=CHUNK, window=window, adapts=False)
        ring.traces()
        request = a_request(prompt, max_tokens=8, sampling=Sampling(logprobs=5))
        (answer,) = ring.generate_all([request])
        told[window] = [(t.token, t.logprob, t.top) for t in answer.reports]
        assert most_under_way(*ring.traces()) <= window
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


# ---- frames that are lost, repeated or late


def now_and_then(seed: int, fault: Fault, faults: int) -> Callable[[int], Fault]:
    """`fault` for `faults` records, each some frames after the one before."""
    dice = random.Random(seed)
    at, chosen = 0, set()
    for _ in range(faults):
        at += HANDSHAKE + dice.randint(1, 40)
        chosen.add(at)
    return lambda number: fault if number in chosen else "pass"


def check_once(ring: WorkerRing) -> None:
    """Check that every stage with work computed every step once."""
    for spans in ring.traces():
        steps = [span.step for span in spans if span.kind in ("chunk", "step")]
        assert len(set(steps)) == len(steps)


@pytest.mark.parametrize(
    ("fault", "stage"),
    [
        pytest.param("drop", 1, id="drop-to-the-second"),
        pytest.param("repeat", 0, id="repeat-to-the-head"),
        pytest.param("drop", 0, id="drop-to-the-head", marks=pytest.mark.nightly),
        pytest.param("repeat", 1, id="repeat-to-the-second", marks=pytest.mark.nightly),
    ],
)
@pytest.mark.promise("P10")
def test_frames_that_are_dropped_or_repeated_leave_the_tokens_unchanged(
    rings: Rings, wires: list[Wire], model: Path, alone: Alone, fault: Fault, stage: int
) -> None:
    requests, bad = some_requests(6, 10), wires[stage]
    expected = [alone.answer(request) for request in requests]
    assert wanders(expected)
    ring = rings.ring(model, CUTS, chunk=CHUNK, rows=ROWS, fresh=True, try_s=PATIENT_S)
    ring.traces()
    bad.judge_by(now_and_then(7, fault, 8))
    answers = ring.generate_all(requests)
    assert bad.faults >= 5
    assert bad.calls >= bad.faults - 1, "the seal notices, and the ring is linked anew"
    check_once(ring)
    assert [answer.tokens for answer in answers] == [said.tokens for said in expected]


def test_frames_that_come_too_late_are_sent_again_and_computed_once(
    rings: Rings, wires: list[Wire], model: Path, alone: Alone
) -> None:
    requests, slow = some_requests(8, 6), wires[2]
    ring = rings.ring(model, CUTS, chunk=CHUNK, rows=ROWS, fresh=True, try_s=LATE_S)
    ring.traces()
    slow.judge_by(lambda number: "hold" if number == 30 else "pass")
    for request in requests:
        ring.send(request)
    await_fault(slow)
    time.sleep(1.5 * LATE_S)  # longer than one attempt takes
    slow.release()
    answers = ring.collect([r.request_id for r in requests])
    check_once(ring)
    assert slow.calls == 0, "the links are good"
    assert [answer.tokens for answer in answers] == [alone.answer(request).tokens for request in requests]


def await_fault(slow: Wire) -> None:
    deadline = time.monotonic() + ANSWER_S
    while not slow.faults:
        assert time.monotonic() < deadline
        time.sleep(0.01)


# ---- answers that are partly written


def sampled_requests(seed: int, count: int, settings: Sequence[Sampling] = SETTINGS) -> list[Request]:
    """Requests of random lengths, sampled in every way."""
    dice = random.Random(seed)
    return [
        a_request(
            dice.choices(range(8, SMALLEST), k=dice.randint(1, 40)),
            max_tokens=ANSWER,
            min_tokens=dice.randrange(ANSWER),
            eos=dice.sample(range(8, SMALLEST), 9),
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


@pytest.fixture(params=TOPOLOGIES)
def turned(rings: Rings, model: Path, request: pytest.FixtureRequest) -> WorkerRing:
    """The ring in either order of work."""
    return rings.ring(model, CUTS, request.param, chunk=CHUNK, rows=ROWS)


def test_other_workers_go_on_with_an_answer(turned: WorkerRing, alone: Alone) -> None:
    requests = sampled_requests(1, len(SETTINGS))
    expected = [alone.answer(request) for request in requests]
    assert wanders(expected)
    check_rest(turned, go_on(turned, requests, some_of(expected, 2)), expected)


@pytest.mark.parametrize(
    ("family", "topology"),
    [
        pytest.param("gemma3_text", "private", id="windows-private", marks=pytest.mark.nightly),
        pytest.param("gemma3_text", "forward", id="windows-forward", marks=pytest.mark.nightly),
        pytest.param("qwen3_next", "private", id="states-private"),
        pytest.param("qwen3_next", "forward", id="states-forward", marks=pytest.mark.nightly),
    ],
)
def test_caches_that_are_never_trimmed_are_read_up_to_where_they_were(
    made: Make, rings: Rings, family: str, topology: Topology
) -> None:
    windows = made("gemma3_text", layers=LAYERS)
    model = windows if family == "gemma3_text" else of_atlas(family, made, num_hidden_layers=LAYERS)
    requests, alone = sampled_requests(3, ROWS + 1, SETTINGS[:2]), Alone(model, CHUNK)
    expected = [alone.answer(request) for request in requests]
    assert wanders(expected)
    ring = rings.ring(model, CUTS, topology, chunk=CHUNK, rows=ROWS)
    check_rest(ring, go_on(ring, requests, some_of(expected, 4)), expected)


def test_an_answer_that_is_written_to_its_end_costs_the_ring_nothing(turned: WorkerRing, alone: Alone) -> None:
    requests = sampled_requests(5, 3)
    expected = [alone.answer(request) for request in requests]
    turned.traces()
    check_rest(turned, go_on(turned, requests, [said.tokens for said in expected]), expected)
    assert turned.traces() == [[], [], []]


def test_a_row_that_is_cancelled_and_asked_for_again_at_once_goes_on(turned: WorkerRing, alone: Alone) -> None:
    """While others run, its end is reported at once, with its last step still on the ring."""
    requests = sampled_requests(6, ROWS, SETTINGS[1:])
    expected = [alone.answer(request).tokens for request in requests]
    said: dict[str, list[int]] = {request.request_id: [] for request in requests}
    (mine, *_), under_way, lives = said, set(said), 1
    for request in requests:
        turned.send(request)
    while under_way:
        match turned.workers[0].next(ANSWER_S).report:
            case Token(request_id=request_id, index=index, token=token):
                assert index == len(said[request_id])
                said[request_id].append(token)
                if request_id == mine and index % 5 == 3:
                    turned.cancel(mine)
            case AnswerDone(request_id=request_id, finish_reason="cancelled"):
                turned.send(behind(requests[0], said[request_id]))
                lives += 1
            case AnswerDone(request_id=request_id):
                under_way.remove(request_id)
    assert lives >= 3
    assert [tuple(tokens) for tokens in said.values()] == expected


def test_where_a_stage_has_lost_its_caches_the_same_requests_go_on(
    model: Path, turned: WorkerRing, alone: Alone
) -> None:
    requests = sampled_requests(7, ROWS + 2)
    expected = [alone.answer(request) for request in requests]

    def forget(token: Token) -> None:
        if (token.request_id, token.index) == (requests[0].request_id, 4):
            turned.workers[1].send(Load(plan=turned.plan, index=1, directory=str(model)))
            turned.workers[1].expect(Loaded, LINK_S)

    for request in requests:
        turned.send(request)
    broken = turned.collect([request.request_id for request in requests], on_token=forget)
    assert {answer.done.problem.kind for answer in broken if answer.done.problem} == {"CachesLost"}
    check_rest(turned, go_on(turned, requests, [answer.tokens for answer in broken]), expected)


def test_where_nobody_answers_they_are_named_and_the_same_requests_go_on_over_new_links(
    rings: Rings, wires: list[Wire], model: Path, alone: Alone
) -> None:
    requests, dead = sampled_requests(8, ROWS + 2), wires[1]
    expected = [alone.answer(request) for request in requests]
    is_silent = False
    ring = rings.ring(model, CUTS, chunk=CHUNK, rows=ROWS, fresh=True, try_s=SILENT_S)
    dead.judge_by(lambda _: "hold" if is_silent else "pass")

    def go_silent(token: Token) -> None:
        nonlocal is_silent
        is_silent |= (token.request_id, token.index) == (requests[0].request_id, 4)

    for request in requests:
        ring.send(request)
    broken = ring.collect([request.request_id for request in requests], on_token=go_silent)
    problems = [answer.done.problem for answer in broken if answer.done.problem]
    assert {(problem.kind, problem.what) for problem in problems} == {("NoAnswer", "mac-1 or mac-2 does not answer.")}
    begun = go_on(ring, requests, [answer.tokens for answer in broken])
    is_silent = False
    dead.release()
    ring.relink()
    check_rest(ring, begun, expected)
