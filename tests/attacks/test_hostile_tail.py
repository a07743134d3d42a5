"""T4 at the head of a ring: a real worker that answers requests; the test holds the keys of the next stage."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Final

import mlx.core as mx
import msgspec
import pytest

from core.engine.requests import Request
from core.errors import LinkError, Problem
from core.link.arrays import encode_arrays
from core.link.data_plane import Frame, Receiver, Sender, accept, dial, listen
from core.link.frames import FrameType
from core.link.network_paths import NetworkPath
from core.local.bare_worker import HOST
from core.local.plans import digest_of
from core.sampling_options import Sampling
from core.trust.identity import parse_text_id
from core.worker.messages import AnswerDone, Connect, LinkBroken, StageSample
from core.worker.ring import read_samples
from core.worker.work_frames import (
    NO_STEP,
    ResumeState,
    WorkFrame,
    decode_resume_state,
    encode_problem,
    encode_resume_state,
    read_work,
)
from tests.attacks.victim import DEEP, HIDDEN
from tests.support.maker import make_model
from tests.support.worker_ring import LINK_S, WorkerRing, a_request, worker_ring

pytestmark = pytest.mark.slow

ACTIVATION, ERROR, TELEMETRY, STANDING = (
    FrameType.ACTIVATION,
    FrameType.ERROR,
    FrameType.TELEMETRY,
    FrameType.RESUME_STATE,
)
FRAME_S: Final = 60.0
WARM: Final = Sampling(temperature=1.0, top_k=9, top_p=0.9, min_p=0.01, seed=3, logprobs=5)
NAN: Final = float("nan")


class HostileTail:
    """Stage 1 of a ring of two, played by the test; the head is the victim."""

    def __init__(self, ring: WorkerRing) -> None:
        self.victim = ring.workers[0]
        self._identity = ring.macs.identities[1]
        self._cluster = ring.macs.cluster
        self.plan = ring.plan
        self._listener: socket.socket = listen(HOST)
        self.sender: Sender
        self.receiver: Receiver

    def close(self) -> None:
        self._listener.close()

    def link(self) -> None:
        """Make both links under the next plan; the head then asks for the state of the ring."""
        self.plan = msgspec.structs.replace(self.plan, plan_gen=self.plan.plan_gen + 1)
        self.victim.send(
            Connect(
                plan=self.plan,
                digest=digest_of(self.plan),
                cluster=self._cluster.encode(),
                ways=(NetworkPath(HOST),),
                next_port=self._listener.getsockname()[1],
            )
        )
        head, binding = parse_text_id(self.plan.stages[0].device_id), digest_of(self.plan)
        ours = {"identity": self._identity, "cluster": self._cluster, "peer_id": head, "binding": binding}
        self.receiver = accept(self._listener, timeout_s=FRAME_S, **ours).receiver()  # type: ignore[arg-type]
        self.sender = dial(HOST, self.victim.port, timeout_s=FRAME_S, **ours).sender()  # type: ignore[arg-type]

    def hang_up(self) -> None:
        self.sender.close()
        self.receiver.close()

    def stand(self, **lies: object) -> None:
        """Answer the head's question: this stage is new."""
        asked = decode_resume_state(self.receiver.recv(FRAME_S))
        told = msgspec.structs.replace(asked, **({"lost": (1,)} | lies))
        self.send(STANDING, encode_resume_state(told))

    def send(self, kind: FrameType, body: bytes) -> None:
        """Send a frame that belongs to no work."""
        self.sender.send(kind, plan_gen=self.plan.plan_gen & 0xFFFF, parts=[body])

    def answer(self, work: WorkFrame) -> None:
        """A frame as the last stage sends it."""
        mine = self.plan.stages[1]
        self.sender.send(
            work.kind,
            request_id=work.request,
            pos=work.position,
            rows=work.rows,
            layers=(mine.start, mine.stop),
            plan_gen=self.plan.plan_gen & 0xFFFF,
            parts=work.parts(1),
        )

    def asked(self) -> WorkFrame:
        """The next step, in order; questions of the head before it are answered."""
        while True:
            frame = self.receiver.recv(FRAME_S)
            if frame.header.type is TELEMETRY:
                self.tell(frame)
            elif frame.header.type is STANDING:  # every stage starts again
                self.send(STANDING, bytes(frame.body))
            else:
                work, _ = read_work(frame)
                return work._replace(payload=(bytes(work.payload[0]),))

    def tell(self, frame: Frame) -> None:
        """Send figures, as an honest stage adds them."""
        self.send(TELEMETRY, msgspec.msgpack.encode([*read_samples(frame), StageSample(index=1)]))

    def broken(self) -> Problem:
        """The head's reason for the end of these links."""
        while (told := self.victim.expect(LinkBroken, LINK_S)).plan_gen != self.plan.plan_gen:
            pass
        return told.problem

    def done(self, request: Request) -> AnswerDone:
        """The end of a request."""
        while (told := self.victim.expect(AnswerDone, LINK_S)).request_id != request.request_id:
            pass
        return told


@pytest.fixture(scope="module")
def tail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileTail]:
    model = tmp_path_factory.mktemp("model") / "llama"
    make_model(model, "llama")
    with worker_ring(model, (4,)) as ring:
        ring.workers[1].kill()
        with closing(HostileTail(ring)) as played:
            yield played
            assert played.victim.is_alive


def begun(tail: HostileTail, *, sampling: Sampling = WARM) -> tuple[Request, WorkFrame]:
    """Start a request; returns its first step with a tensor. Earlier work is answered as an honest stage does."""
    tail.link()
    tail.stand()
    request = a_request([5], max_tokens=3, sampling=sampling)
    tail.victim.send(request)
    while (work := tail.asked()).kind is not ACTIVATION:
        tail.answer(work)
    return request, work


def check_honest(tail: HostileTail) -> None:
    """Check that the head answers over layers that change nothing, and gives a reason for the failure before."""
    request, work = begun(tail)
    while True:
        tail.answer(work)
        if work.kind is FrameType.COMPOSE and work.step > 1:
            break
        work = tail.asked()
    done = tail.done(request)
    assert (done.finish_reason, done.tokens) == ("length", 3)
    tail.hang_up()
    assert tail.broken().kind == "LinkLost"


def tensor(*shape: int, value: float = 0.0) -> list[bytes]:
    return [bytes(part) for part in encode_arrays([mx.full(shape, value)])]


def telling(**figures: object) -> bytes:
    return msgspec.msgpack.encode([{"index": 0}, {"index": 1, **figures}])


WORK: dict[str, Callable[[WorkFrame], WorkFrame]] = {
    "another handle": lambda work: work._replace(handle=work.handle + 1),
    "another position": lambda work: work._replace(position=9),
    "a step that was never sent": lambda work: work._replace(step=work.step + 1),
    "the last of all steps": lambda work: work._replace(step=2**64 - 1),
    "no step": lambda work: work._replace(step=NO_STEP),
    "no tensor": lambda work: work._replace(payload=()),
    "another tensor": lambda work: work._replace(payload=tensor(1, 1, HIDDEN - 1)),
    "two rows": lambda work: work._replace(payload=tensor(2, 1, HIDDEN), rows=2),
    "an ack": lambda work: work._replace(kind=FrameType.ACK),
    "a composition": lambda work: work._replace(kind=FrameType.COMPOSE),
    "a long ack": lambda work: work._replace(kind=FrameType.ACK, payload=(bytes(1 << 20),)),
    "a problem that is a bomb": lambda work: work._replace(kind=ERROR, payload=(DEEP,)),
    "a bomb in a problem": lambda work: work._replace(
        kind=ERROR, payload=(b"\x83\xa4kind\xa1a\xa4what\xa1b\xa1x" + DEEP,)
    ),
}


@pytest.mark.parametrize("bend", [pytest.param(bend, id=name) for name, bend in WORK.items()])
@pytest.mark.promise("T4")
def test_an_answer_that_no_honest_stage_gives_ends_the_link_and_nothing_else(
    tail: HostileTail, bend: Callable[[WorkFrame], WorkFrame]
) -> None:
    _, work = begun(tail)
    tail.answer(bend(work))
    assert tail.broken().kind == "ProtocolError"
    tail.hang_up()
    check_honest(tail)


BODIES = {
    "figures nobody asked for": (TELEMETRY, telling()),
    "a question": (STANDING, encode_resume_state(ResumeState(b"r", 1))),
    "new keys": (FrameType.RESUME, b""),
    "a frame of the control plane": (FrameType.ROSTER, b"{}"),
}


@pytest.mark.parametrize(("kind", "body"), [pytest.param(*pair, id=name) for name, pair in BODIES.items()])
def test_a_body_that_was_not_asked_for_ends_the_link_and_nothing_else(
    tail: HostileTail, kind: FrameType, body: bytes
) -> None:
    begun(tail)
    tail.send(kind, body)
    if kind is TELEMETRY:  # the first may answer a question of the head
        with suppress(LinkError):
            tail.send(kind, body)
    assert tail.broken().kind == "ProtocolError"
    tail.hang_up()
    check_honest(tail)


@pytest.mark.parametrize(
    "lies",
    [
        pytest.param({"lost": (99,)}, id="a stage that is none"),
        pytest.param({"lost": (-1,)}, id="a stage below none"),
        pytest.param({"lost": (0,)}, id="the head"),
        pytest.param({"run": b"another"}, id="another run"),
        pytest.param({"base": 2**64 - 1}, id="another base"),
    ],
)
def test_a_standing_that_no_honest_stage_tells_ends_the_link_and_nothing_else(
    tail: HostileTail, lies: dict[str, object]
) -> None:
    begun(tail)
    tail.hang_up()
    tail.broken()
    tail.link()
    tail.stand(**lies)
    assert tail.broken().kind == "ProtocolError"
    tail.hang_up()
    check_honest(tail)


FIGURES = {
    "no numbers": telling(wait_s=NAN),
    "without end": telling(compute_s=float("inf")),
    "less than none": telling(wire_s=-1.0),
    "of nobody": msgspec.msgpack.encode([]),
    "of the head alone": msgspec.msgpack.encode([{"index": 0}]),
    "of three": msgspec.msgpack.encode([{"index": n} for n in range(3)]),
    "that are a bomb": b"\x91\x82\xa5index\x00\xa1x" + DEEP,
}


@pytest.mark.parametrize("body", [pytest.param(body, id=name) for name, body in FIGURES.items()])
def test_figures_that_cannot_be_end_the_link_and_nothing_else(tail: HostileTail, body: bytes) -> None:
    """The head asks for figures in the middle of an answer, and sizes prompt chunks by them."""
    begun(tail)
    while tail.receiver.recv(FRAME_S).header.type is not TELEMETRY:
        pass
    tail.send(TELEMETRY, body)
    assert tail.broken().kind == "ProtocolError"
    tail.hang_up()
    check_honest(tail)


@pytest.mark.parametrize("value", [NAN, float("inf"), -float("inf"), 3e38], ids=str)
def test_hidden_states_that_are_no_numbers_give_tokens_that_are_none_and_the_worker_lives(
    tail: HostileTail, value: float
) -> None:
    """A paired Mac can change its output; that has no other effect."""
    request, work = begun(tail)
    while work.kind is ACTIVATION:
        tail.answer(work._replace(payload=tensor(1, 1, HIDDEN, value=value)))
        work = tail.asked()
    tail.answer(work)
    tail.done(request)
    tail.hang_up()
    tail.broken()
    check_honest(tail)


def test_what_a_hostile_stage_says_of_itself_is_cleaned(tail: HostileTail) -> None:
    request, work = begun(tail)
    hostile = Problem(kind="\x1b]52;c;x\x07", what="\x1b[2Jgone", fix="\x9b31m")
    tail.answer(work._replace(kind=ERROR, payload=tuple(encode_problem(hostile))))
    problem = tail.done(request).problem
    assert problem
    assert "gone" in problem.what
    assert not any("\x1b" in text or "\x9b" in text for text in (problem.kind, problem.what, problem.fix))
    tail.hang_up()
    tail.broken()
    check_honest(tail)
