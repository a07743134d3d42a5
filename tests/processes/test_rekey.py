"""The links of a ring of real workers get new keys in the middle of answers, and no token changes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import mlx.core as mx
import mlx_lm
import pytest
from mlx_lm.generate import generate_step

from core.errors import LinkError, Problem, error_from
from core.local.bare_worker import HOST
from core.settings import PREFILL_CHUNK
from core.worker.messages import LinkBroken, Token
from tests.support.attentive import LIMITS
from tests.support.cluster import Make
from tests.support.worker_ring import LINK_S, RingAnswer, WorkerRing, a_request, worker_ring

LONG: Final = tuple(104_729 * (n + 1) ** 2 % 256 for n in range(PREFILL_CHUNK + 40))
SHORT: Final = (101, 102, 103, 104)
CUTS: Final = (1, 3)
TOKENS: Final = 32
HANDSHAKE_BYTES: Final = 2000
RESUMPTION: Final = 41
KEY_SHARE: Final = 51


Alone = dict[tuple[int, ...], tuple[int, ...]]


@pytest.fixture(scope="module")
def model(made: Make) -> Path:
    return made("llama", layers=4)


@pytest.fixture(scope="module")
def alone(model: Path) -> Alone:
    """The answers of mlx_lm in one process."""
    whole = mlx_lm.load(str(model))[0]
    answers = {}
    for prompt in (LONG, SHORT):
        steps = generate_step(mx.array(prompt), whole, max_tokens=TOKENS, prefill_step_size=PREFILL_CHUNK)
        answers[prompt] = tuple(int(token) for token, _ in steps)
        assert len(set(answers[prompt])) >= TOKENS // 2, "a reference that repeats one token proves nothing"
    return answers


class Call:
    """A connection through the gate."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.near, self.far = near, far
        self.hello = b""
        self.bytes = 0

    @property
    def random(self) -> bytes:
        """The 32 random bytes of its TLS hello."""
        return self.hello[11:43]

    @property
    def extensions(self) -> dict[int, bytes]:
        """The extensions of its TLS hello."""
        at = 44 + self.hello[43]
        at += 2 + int.from_bytes(self.hello[at : at + 2], "big")
        at += 1 + self.hello[at]
        rest, found = self.hello[at + 2 :], {}
        while rest:
            length = int.from_bytes(rest[2:4], "big")
            found[int.from_bytes(rest[:2], "big")] = rest[4 : 4 + length]
            rest = rest[4 + length :]
        return found


class Gate:
    """A TCP relay before one stage: records connections and ends in order, and refuses the next `refusals`."""

    def __init__(self) -> None:
        self.refusals = 0
        self.calls: list[Call] = []
        self.ended: list[tuple[int, list[int]]] = []
        self._lock = threading.Lock()
        self._server = socket.create_server((HOST, 0))
        self._threads: list[threading.Thread] = []

    def before(self, port: int) -> int:
        """The port to dial instead."""
        if not self._threads:
            self._spawn(self._serve, port)
        return int(self._server.getsockname()[1])

    def close(self) -> None:
        """Close the relay; every client must be gone."""
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in self._threads:
            thread.join()

    def _spawn(self, work: object, *arguments: object) -> None:
        assert callable(work)
        self._threads.append(threading.Thread(target=work, args=arguments))
        self._threads[-1].start()

    def _serve(self, port: int) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                if self.refusals:
                    self.refusals -= 1
                    near.close()
                    continue
                call = Call(near, socket.create_connection((HOST, port)))
                self.calls.append(call)
                self._spawn(self._copy, call, near, call.far)
                self._spawn(self._copy, call, call.far, near)

    def _copy(self, call: Call, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if not call.hello:
                    call.hello = data
                call.bytes += len(data)
                target.sendall(data)
        with self._lock:
            if call.far.fileno() >= 0:
                self.ended.append((self.calls.index(call), [other.bytes for other in self.calls]))
            for end in (call.near, call.far):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()


@contextmanager
def gate() -> Iterator[Gate]:
    opened = Gate()
    try:
        yield opened
    finally:
        opened.close()


class Watched(NamedTuple):
    """A ring of three stages whose links get new keys every five frames, and the gate before the last one."""

    ring: WorkerRing
    gate: Gate


@pytest.fixture(scope="module")
def watched(model: Path) -> Iterator[Watched]:
    with gate() as before_the_tail:

        def reroute(stage: int, port: int) -> int:
            return before_the_tail.before(port) if stage == 2 else port

        with worker_ring(model, CUTS, reroute=reroute, key_limits=LIMITS) as ring:
            yield Watched(ring, before_the_tail)


def renewals(answer: RingAnswer) -> int:
    """How often the links had got new keys by then; all stages report the same."""
    (count,) = {sample.renewals for sample in answer.samples}
    return count


@pytest.mark.slow
@pytest.mark.promise("P15")
def test_answers_taking_turns_over_new_keys_every_few_frames_are_exact(watched: Watched, alone: Alone) -> None:
    counts = [0]
    for prompt in (SHORT, LONG):
        answer = watched.ring.generate(prompt, max_tokens=TOKENS)
        assert answer.tokens == alone[prompt]
        counts.append(renewals(answer))
        assert all(s.frames >= TOKENS + counts[-1] - counts[-2] - 1 for s in answer.samples), "none is forgotten"
    assert all(after - before > 3 for before, after in pairwise(counts)), "the links outlive the answers"


@pytest.mark.slow
@pytest.mark.promise("P15")
def test_rows_that_run_together_come_to_rest_for_new_keys_and_are_exact(watched: Watched, alone: Alone) -> None:
    """A worn key stops new work on the ring, and running work comes back first."""
    before = renewals(watched.ring.generate(SHORT, max_tokens=1))
    requests = [a_request(prompt, max_tokens=TOKENS) for prompt in (SHORT, LONG, SHORT, SHORT)]
    watched.ring.traces()
    answers = watched.ring.generate_all(requests)
    for request, answer in zip(requests, answers, strict=True):
        assert answer.tokens == alone[tuple(request.tokens)]
    assert renewals(answers[-1]) > before + 3
    lanes = {span.handle for span in watched.ring.traces()[0] if span.kind == "step"}
    assert len(lanes) > 1, "they ran in lanes"


def test_every_new_link_is_up_before_the_old_one_goes_and_nothing_is_resumed(watched: Watched) -> None:
    before = len(watched.gate.calls)
    watched.ring.generate(SHORT, max_tokens=TOKENS)
    calls, ended = list(watched.gate.calls), list(watched.gate.ended)
    assert len(calls) > before + 3
    assert [number for number, _ in ended] == list(range(len(calls) - 1))
    assert all(carried[number + 1] > HANDSHAKE_BYTES for number, carried in ended)
    assert len({call.random for call in calls}) == len({call.extensions[KEY_SHARE] for call in calls}) == len(calls)
    assert not any(RESUMPTION in call.extensions for call in calls)


@pytest.mark.slow
def test_a_stage_that_cannot_be_linked_anew_is_told_of_and_the_answers_go_on_over_the_next_links(
    watched: Watched, alone: Alone
) -> None:
    requests = [a_request(prompt, max_tokens=TOKENS) for prompt in (SHORT, LONG, SHORT)]
    for request in requests:
        watched.ring.send(request)
    told, problem = until_it_breaks(watched)
    assert isinstance(error_from(problem), LinkError)
    assert f"port {watched.gate.before(0)}" in problem.what, "what stage 1 saw, not a silence"
    watched.ring.relink()
    for request, answer in zip(requests, watched.ring.collect([r.request_id for r in requests]), strict=True):
        before = tuple(token.token for token in told if token.request_id == request.request_id)
        assert answer.done.finish_reason == "length"
        assert before + answer.tokens == alone[tuple(request.tokens)]
    assert any(told)
    assert watched.ring.generate(SHORT, max_tokens=TOKENS).tokens == alone[SHORT]


def until_it_breaks(watched: Watched) -> tuple[list[Token], Problem]:
    """The tokens before the gate refuses a stage that links again, and the head's reason why the ring breaks."""
    told: list[Token] = []
    while True:
        report = watched.ring.workers[0].next(LINK_S).report
        if isinstance(report, LinkBroken):
            return told, report.problem
        if isinstance(report, Token):
            told.append(report)
            watched.gate.refusals += len(told) == 5


@pytest.mark.slow
def test_a_ring_that_broke_for_a_moment_links_itself_anew_and_the_answer_is_exact(
    watched: Watched, alone: Alone
) -> None:
    """The ring links as a node does it, without a new request."""
    before = watched.ring.plan.plan_gen

    def turn_away(token: Token) -> None:
        watched.gate.refusals += token.index == 5

    answer = watched.ring.generate(SHORT, max_tokens=TOKENS, on_token=turn_away)
    assert answer.tokens == alone[SHORT]
    assert watched.ring.plan.plan_gen == before + 1
    assert watched.gate.refusals == 0
