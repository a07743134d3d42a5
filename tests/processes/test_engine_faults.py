"""Lost, repeated or late frames change no token, and no stage computes a step twice."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import pytest

from core.errors import NoAnswer, error_from
from core.worker.messages import Token
from tests.support.alone import Alone, wanders
from tests.support.cluster import Make
from tests.support.requests import CHUNK, CUTS, LAYERS, some_requests
from tests.support.wires import Fault, Wire, before, wire
from tests.support.worker_ring import WorkerRing, a_request, worker_ring

pytestmark = pytest.mark.slow

TRY_S: Final = 0.4
PATIENT_S: Final = 30.0
HANDSHAKE: Final = 8  # records of a connection before the first frame, at most


@pytest.fixture(scope="module")
def model(made: Make) -> Path:
    return made("llama", layers=LAYERS)


@pytest.fixture(scope="module")
def alone(model: Path) -> Alone:
    return Alone(model, CHUNK)


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
    model: Path, alone: Alone, fault: Fault, stage: int
) -> None:
    requests = some_requests(6, 10)
    expected = [alone.answer(request) for request in requests]
    assert wanders(expected)
    with (
        wire(now_and_then(7, fault, 8)) as bad,
        worker_ring(model, CUTS, chunk=CHUNK, rows=4, reroute=before(stage, bad), try_s=PATIENT_S) as ring,
    ):
        answers = ring.generate_all(requests)
        assert bad.faults >= 5
        assert bad.calls >= 1 + bad.faults - 1, "the seal notices, and the ring is linked anew"
        check_once(ring)
    assert [answer.tokens for answer in answers] == [said.tokens for said in expected]


def test_frames_that_come_too_late_are_sent_again_and_computed_once(model: Path, alone: Alone) -> None:
    requests = some_requests(8, 6)
    with (
        wire(lambda number: "hold" if number == HANDSHAKE + 30 else "pass") as slow,
        worker_ring(model, CUTS, chunk=CHUNK, rows=4, reroute=before(2, slow), try_s=TRY_S) as ring,
    ):
        for request in requests:
            ring.send(request)
        frames = _held_frames(slow)
        slow.release()
        answers = ring.collect([r.request_id for r in requests])
        check_once(ring)
        assert slow.calls == 1, "the links are good"
    assert frames
    assert [answer.tokens for answer in answers] == [alone.answer(request).tokens for request in requests]


def _held_frames(slow: Wire) -> bool:
    """Wait until the wire holds a frame for longer than one attempt takes."""
    import time

    deadline = time.monotonic() + 120.0
    while not slow.faults:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(1.5 * TRY_S)
    return True


def test_after_three_tries_the_answer_names_who_does_not_answer(model: Path, alone: Alone) -> None:
    silent = {"now": False}
    first, second = a_request([21, 22, 23], max_tokens=400), a_request([31, 32, 33], max_tokens=400)
    with (
        wire(lambda _: "hold" if silent["now"] else "pass") as dead,
        worker_ring(model, (2,), chunk=CHUNK, reroute=before(1, dead), try_s=TRY_S) as ring,
    ):

        def go_silent(token: Token) -> None:
            silent["now"] |= token.index == 5

        for request in (first, second):
            ring.send(request)
        answers = ring.collect([first.request_id, second.request_id], on_token=go_silent)
        for request, answer in zip((first, second), answers, strict=True):
            assert answer.done.problem
            assert isinstance(error_from(answer.done.problem), NoAnswer)
            assert answer.done.problem.what == "mac-1 does not answer."
            begun = msgspec.structs.replace(request, max_tokens=max(len(answer.tokens), 1))
            assert answer.tokens == alone.answer(begun).tokens[: len(answer.tokens)]
        silent["now"] = False
        dead.release()
        ring.relink()
        assert (
            ring.generate([41, 42, 43], max_tokens=8).tokens
            == alone.answer(a_request([41, 42, 43], max_tokens=8)).tokens
        )
