"""The head's end of the ring and its followers, over real links that break where the test wants.

Nothing moves by itself: a frame waits at a stage until the test lets it serve.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from time import monotonic
from typing import Any

import mlx.core as mx
import msgspec
import numpy as np
import pytest
from mlx_lm.models.cache import make_prompt_cache

from core.engine.ring_work import Drop, New
from core.engine.sampling import Picked
from core.engine.steps import TRIES
from core.errors import LinkLost, NoAnswer, Problem, ProtocolError
from core.events import Topology
from core.link.arrays import encode_arrays
from core.link.frames import FrameType
from core.link.rekey_limits import KEY_LIMITS
from core.worker.follower import Follower
from core.worker.main import row_bytes
from core.worker.messages import StageSample
from core.worker.pipeline import Pipeline, StepAnswer
from core.worker.remote_sampling import encode_choices
from core.worker.ring import Ring
from core.worker.stage import LoadedStage
from core.worker.telemetry import StageMeter
from core.worker.work_frames import (
    NO_STEP,
    ResumeState,
    WorkFrame,
    decode_resume_state,
    encode_problem,
    encode_resume_state,
)
from tests.support.grammars import BYTES
from tests.support.linked import WAIT_S, Linked, plan_between
from tests.support.made import build, twin
from tests.support.rings import slices_of

pytestmark = pytest.mark.slow

CUTS = (3, 6)
PATIENT_S = 1000.0
PROMPT = (11, 12, 13, 14, 15)
built = cache(build)


class Turns:
    """A head and two followers, which take turns in one thread."""

    def __init__(self, linked: Linked, stages: list[LoadedStage], try_s: float) -> None:
        self.linked, self.stages = linked, stages
        self.pipeline = Pipeline(stages[0], linked.plan, try_s)
        self.followers = [Follower(stage, linked.plan, number, BYTES) for number, stage in enumerate(stages[1:], 1)]
        self._standing = False

    @property
    def tail(self) -> Ring:
        """The link of the last stage, for tests that play it by hand."""
        return self.linked.rings[2]

    def link(self) -> Problem | None:
        """Make new links; frames that are sent again wait there."""
        self.pipeline.unlink()
        rings = self.linked.link()
        self._standing = True
        asked = [self.linked.pool.submit(self._stand, n) for n in (1, 2)]
        try:
            return self.pipeline.link(rings[0])
        finally:
            self._standing = False
            for each in asked:
                each.result(WAIT_S)

    def _stand(self, number: int) -> None:
        """Serve the one or two questions that come first."""
        ring, follower = self.linked.rings[number], self.followers[number - 1]
        while self._standing:
            if ring.wait((), 0.01):
                frame = ring.receive()
                if frame.header.type is not FrameType.RESUME_STATE:
                    ring._arrived.append(frame._replace(body=memoryview(bytes(frame.body))))
                    return
                follower.serve(ring, frame)

    def serve(self, number: int, frames: int = 1) -> None:
        """Serve `frames` frames at stage `number`."""
        ring = self.linked.rings[number]
        for _ in range(frames):
            assert ring.wait((), WAIT_S)
            self.followers[number - 1].serve(ring, ring.receive())

    def answers(self, count: int) -> list[StepAnswer]:
        """Let all stages serve until the head has `count` answers."""
        heard: list[StepAnswer] = []
        deadline = monotonic() + WAIT_S
        while len(heard) < count:
            assert monotonic() < deadline
            for number in (1, 2):
                if self.linked.rings[number].has_frame():
                    self.serve(number)
            if answer := self.pipeline.take():
                heard.append(answer)
        return heard

    def logits(self, answer: StepAnswer) -> Any:
        assert answer.problem is None
        assert answer.logits is not None
        return np.array(answer.logits)


@cache
def reference(tokens: tuple[int, ...] = PROMPT) -> Any:
    """Logits [1, V] after these tokens, one by one, from the whole model."""
    whole = built("llama")
    caches = make_prompt_cache(whole)
    for token in tokens:
        logits = whole(mx.array([[token]]), cache=caches)[:, -1]
    return np.array(logits)


@contextmanager
def taking_turns(try_s: float = PATIENT_S, topology: Topology = "private") -> Iterator[Turns]:
    whole = built("llama")
    slices = slices_of(whole, lambda: twin("llama", whole), CUTS, topology)
    with ExitStack() as stack:
        plan = plan_between(3, topology)
        widths = [row_bytes(plan, number, layers) for number, layers in enumerate(slices)]
        stages = [LoadedStage(layers, StageMeter(number)) for number, layers in enumerate(slices)]
        linked = Linked(stack, 3, topology=topology, row_bytes=widths, meters=[stage.meter for stage in stages])
        yield Turns(linked, stages, try_s)


@pytest.fixture(params=["private"])
def turns(request: pytest.FixtureRequest) -> Iterator[Turns]:
    with taking_turns(topology=request.param) as made:
        assert made.link() is None
        yield made


every_topology = pytest.mark.parametrize("turns", ["private", "forward", "reverse"], indirect=True)


def ask(turns: Turns, tokens: tuple[int, ...] = PROMPT) -> None:
    """Start a row and put its tokens on the ring, each as its own step, all at once."""
    turns.pipeline.compose([New(1)], "new")
    for token in tokens:
        turns.pipeline.forward(1, mx.array([[token]]), work=token)


def check_once(turns: Turns) -> None:
    """Check that every stage computed each step exactly once."""
    for stage in turns.stages:
        steps = [span.step for span in stage.meter.take_spans() if span.kind != "output"]
        assert steps == list(range(1, len(PROMPT) + 2))


@every_topology
def test_work_goes_round_in_order_and_its_logits_are_the_models(turns: Turns) -> None:
    ask(turns)
    assert not turns.pipeline.is_at_rest
    heard = turns.answers(len(PROMPT) + 1)
    assert [answer.work for answer in heard] == ["new", *PROMPT]
    np.testing.assert_array_equal(turns.logits(heard[-1]), reference())
    assert turns.pipeline.is_at_rest
    check_once(turns)


# ---- links break, and frames in flight are sent again


@pytest.mark.parametrize(
    ("turns", "first", "second"),
    [
        *(("private", *served) for served in ((0, 0), (1, 0), (2, 0), (6, 0), (1, 1), (3, 1), (3, 3), (6, 5))),
        *((topology, *served) for topology in ("forward", "reverse") for served in ((2, 0), (6, 5))),
    ],
    indirect=["turns"],
)
def test_links_that_break_anywhere_cost_nothing(turns: Turns, first: int, second: int) -> None:
    """`first` and `second`: how many frames the stages had served when the links broke."""
    ask(turns)
    turns.serve(1, first)
    turns.serve(2, second)
    assert turns.link() is None
    heard = turns.answers(len(PROMPT) + 1)
    assert [answer.work for answer in heard] == ["new", *PROMPT]
    np.testing.assert_array_equal(turns.logits(heard[-1]), reference())
    check_once(turns)


@every_topology
def test_answers_that_were_lost_on_the_last_hop_come_from_memory(turns: Turns) -> None:
    ask(turns)
    turns.serve(1, len(PROMPT) + 1)
    turns.serve(2, len(PROMPT) + 1)
    turns.link()
    assert len(turns.answers(len(PROMPT) + 1)) == len(PROMPT) + 1
    check_once(turns)


@every_topology
def test_work_that_is_put_while_no_links_stand_goes_out_over_the_next(turns: Turns) -> None:
    turns.pipeline.unlink()
    assert not turns.pipeline.is_linked
    ask(turns)
    assert turns.pipeline.take() is None
    turns.link()
    assert turns.pipeline.is_linked
    np.testing.assert_array_equal(turns.logits(turns.answers(len(PROMPT) + 1)[-1]), reference())


def test_a_step_that_breaks_the_link_itself_goes_out_over_the_next(turns: Turns) -> None:
    turns.pipeline.compose([New(1)])
    turns.linked.close()
    with pytest.raises(LinkLost):
        turns.pipeline.forward(1, mx.array([PROMPT[:1]]))
    turns.link()
    np.testing.assert_array_equal(turns.logits(turns.answers(2)[-1]), reference(PROMPT[:1]))


@pytest.mark.parametrize(
    ("turns", "lost"),
    [("private", (1,)), ("private", (2,)), ("private", (1, 2)), ("forward", (2,)), ("reverse", (1,))],
    indirect=["turns"],
)
def test_where_a_stage_has_lost_its_caches_everybody_begins_anew(turns: Turns, lost: tuple[int, ...]) -> None:
    ask(turns)
    turns.answers(3)
    for number in lost:
        turns.stages[number].reset()
        turns.followers[number - 1] = Follower(turns.stages[number], turns.linked.plan, number, BYTES)
    problem = turns.link()
    assert problem
    assert problem.kind == "CachesLost"
    names = " and ".join(f"mac{number}" for number in lost)
    assert problem.what == f"{names} was restarted and has lost the answer."
    assert turns.pipeline.is_at_rest
    assert [stage.handles for stage in turns.stages] == [0, 0, 0]
    ask(turns)
    np.testing.assert_array_equal(turns.logits(turns.answers(len(PROMPT) + 1)[-1]), reference())


def test_a_stage_that_is_new_costs_nothing_while_nothing_is_held(turns: Turns) -> None:
    ask(turns)
    turns.answers(len(PROMPT) + 1)
    turns.pipeline.compose([Drop(1)])
    turns.answers(1)
    turns.followers[0] = Follower(turns.stages[1], turns.linked.plan, 1, BYTES)
    assert turns.link() is None
    ask(turns)
    np.testing.assert_array_equal(turns.logits(turns.answers(len(PROMPT) + 1)[-1]), reference())


@every_topology
def test_a_head_that_begins_anew_is_followed(turns: Turns) -> None:
    ask(turns)
    turns.answers(3)
    turns.pipeline.begin_anew()
    assert turns.link() is None
    assert [stage.handles for stage in turns.stages] == [0, 0, 0]


@every_topology
def test_what_is_put_after_a_new_beginning_and_before_new_links_is_not_lost(turns: Turns) -> None:
    ask(turns)
    turns.answers(3)
    turns.linked.close()
    turns.pipeline.unlink()
    turns.pipeline.begin_anew()
    ask(turns)
    assert turns.link() is None
    np.testing.assert_array_equal(turns.logits(turns.answers(len(PROMPT) + 1)[-1]), reference())


# ---- missing answers


def test_what_is_not_answered_in_time_is_sent_again_and_counts_once() -> None:
    with taking_turns(try_s=0.05) as turns:
        turns.link()
        ask(turns)
        turns.pipeline.wait(None)
        for number in (1, 2):
            turns.serve(number, 2 * (len(PROMPT) + 1))
        heard = turns.answers(len(PROMPT) + 1)
        assert [answer.work for answer in heard] == ["new", *PROMPT]
        assert turns.linked.head.has_frame(), "each was answered twice"
        assert turns.pipeline.take() is None
        check_once(turns)


def test_after_three_tries_it_says_who_does_not_answer() -> None:
    with taking_turns(try_s=0.01) as turns:
        turns.link()
        ask(turns)
        for _ in range(TRIES - 1):
            turns.pipeline.wait(None)
        with pytest.raises(NoAnswer, match="mac1 or mac2 does not answer"):
            turns.pipeline.wait(None)
        turns.pipeline.begin_anew()
        assert turns.link() is None
        assert turns.pipeline.is_at_rest


def test_new_links_that_bring_no_answer_are_tries_too(turns: Turns) -> None:
    ask(turns)
    for _ in range(TRIES - 1):
        turns.link()
    with pytest.raises(NoAnswer):
        turns.link()


# ---- unrequested answers


GOOD = WorkFrame(FrameType.ACTIVATION, 2, 1, rows=1)
ODD = [
    pytest.param(GOOD._replace(handle=2), id="another handle"),
    pytest.param(GOOD._replace(position=1), id="another position"),
    pytest.param(GOOD._replace(rows=2), id="more rows"),
    pytest.param(GOOD._replace(kind=FrameType.ACK), id="no tensor"),
    pytest.param(GOOD._replace(kind=FrameType.COMPOSE), id="a composition"),
    pytest.param(GOOD._replace(step=1), id="a tensor for a composition"),
    pytest.param(GOOD._replace(step=3, position=1), id="a tensor for an ack"),
    pytest.param(GOOD._replace(step=4), id="a step that was never sent"),
    pytest.param(GOOD._replace(step=2**64 - 1), id="the last of all steps"),
    pytest.param(GOOD._replace(step=NO_STEP), id="no step"),
    pytest.param(WorkFrame(FrameType.ERROR, 2, 1, payload=[b"\xc1"]), id="a problem that does not decode"),
    pytest.param(WorkFrame(FrameType.ERROR, 2, 1), id="a problem that is none"),
]


def boundary(*shape: int) -> list[Any]:
    return list(encode_arrays([mx.zeros(shape)]))


def composed(turns: Turns) -> None:
    """A pipeline with step 1 answered: an answer to step 2 is the next."""
    turns.pipeline.compose([New(1)])
    assert turns.answers(1) == [StepAnswer(None)]


@pytest.mark.parametrize("work", ODD)
@pytest.mark.promise("P10")
def test_an_answer_that_does_not_belong_to_its_step_breaks_the_link(turns: Turns, work: WorkFrame) -> None:
    turns.pipeline.compose([New(1)])
    turns.answers(work.step != 1)
    turns.pipeline.forward(1, mx.array([[5]]))
    turns.answers(work.step == 3)
    turns.pipeline.forward(1, mx.array([[6]]), quiet=True)
    payload = work.payload if work.kind is FrameType.ERROR else boundary(1, 1, 96)
    turns.tail.send_work(work._replace(payload=payload), 1)
    with pytest.raises(ProtocolError):
        turns.pipeline.take()


@pytest.mark.parametrize("payload", [[], [b"\xff" * 9], boundary(1, 1, 95), boundary(2, 1, 96), boundary(96)])
def test_an_answer_with_another_tensor_breaks_the_link(turns: Turns, payload: list[Any]) -> None:
    composed(turns)
    turns.pipeline.forward(1, mx.array([[5]]))
    turns.tail.send_work(GOOD._replace(payload=payload), 1)
    with pytest.raises(ProtocolError):
        turns.pipeline.take()


@pytest.mark.parametrize("kind", [FrameType.TELEMETRY, FrameType.RESUME_STATE, FrameType.RESUME, FrameType.PLAN])
def test_a_frame_that_was_not_asked_for_breaks_the_link(turns: Turns, kind: FrameType) -> None:
    turns.tail.send(kind, msgspec.msgpack.encode([]))
    with pytest.raises(ProtocolError, match="came to the head"):
        turns.pipeline.take()


def test_what_a_stage_could_not_do_is_the_answer(turns: Turns) -> None:
    told = Problem(kind="StageFailed", what="mac2: no memory\x1b[2J", fix="Close something.")
    composed(turns)
    turns.pipeline.forward(1, mx.array([[5]]), work="mine")
    turns.tail.send_work(WorkFrame(FrameType.ERROR, 2, 1, payload=encode_problem(told)), 1)
    answer = turns.pipeline.take()
    assert answer == StepAnswer("mine", problem=msgspec.structs.replace(told, what="mac2: no memory[2J"))


@every_topology
@pytest.mark.promise("T4")
def test_no_stage_makes_the_head_remember_handles_that_it_did_not_name(turns: Turns) -> None:
    turns.pipeline.compose([New(1)])
    payload = encode_problem(Problem(kind="StageFailed", what="no"), range(5, 5000))
    turns.tail.send_work(WorkFrame(FrameType.ERROR, 1, 0, payload=payload), 1)
    answer = turns.pipeline.take()
    assert answer
    assert answer.problem
    assert turns.pipeline._execution._tainted.keys() <= {1}


ASKER = b"a" * 16
CHOSEN = WorkFrame(FrameType.TOKEN, 2, 1, rows=1)
FALSE_CHOICES = [
    pytest.param(CHOSEN._replace(payload=encode_choices([])), id="no row"),
    pytest.param(CHOSEN._replace(payload=encode_choices([[Picked(1)], [Picked(2)]])), id="two rows"),
    pytest.param(CHOSEN._replace(payload=encode_choices([[Picked(1), Picked(2)]])), id="two tokens"),
    pytest.param(CHOSEN._replace(payload=encode_choices([[Picked(2**31 - 1)]])), id="a token that is none"),
    pytest.param(CHOSEN._replace(payload=[b"\xc1"]), id="nothing that decodes"),
    pytest.param(CHOSEN._replace(kind=FrameType.ACK), id="an ack"),
    pytest.param(CHOSEN._replace(kind=FrameType.ACTIVATION, payload=boundary(1, 211)), id="logits"),
]


@pytest.mark.parametrize("turns", ["forward"], indirect=True)
@pytest.mark.parametrize("work", FALSE_CHOICES)
@pytest.mark.promise("T4")
def test_tokens_that_no_honest_stage_chooses_break_the_link(turns: Turns, work: WorkFrame) -> None:
    composed(turns)
    turns.pipeline.forward(1, mx.array([[5]]), askers=(ASKER,))
    turns.tail.send_work(work, 1)
    with pytest.raises(ProtocolError):
        turns.pipeline.take()


@pytest.mark.parametrize("turns", ["forward"], indirect=True)
@pytest.mark.parametrize("shape", [(1, 210), (2, 211), (1, 1, 211), (211,)])
def test_logits_of_another_shape_break_the_link(turns: Turns, shape: tuple[int, ...]) -> None:
    composed(turns)
    turns.pipeline.forward(1, mx.array([[5]]))
    turns.tail.send_work(GOOD._replace(payload=boundary(*shape)), 1)
    with pytest.raises(ProtocolError, match=r"have shapes|are allowed"):
        turns.pipeline.take()


Told = Callable[[ResumeState], ResumeState]


@pytest.mark.parametrize(
    ("told", "why"),
    [
        pytest.param(
            lambda asked: msgspec.structs.replace(asked, run=b"another"), "answered for another run", id="another run"
        ),
        pytest.param(
            lambda asked: msgspec.structs.replace(asked, base=2), "answered for another run", id="another base"
        ),
        pytest.param(
            lambda asked: msgspec.structs.replace(asked, lost=(0,)), "answered for another run", id="the head itself"
        ),
        pytest.param(
            lambda asked: msgspec.structs.replace(asked, lost=(3,)),
            "answered for another run",
            id="a stage that is none",
        ),
        pytest.param(
            lambda asked: msgspec.structs.replace(asked, lost=(-1,)), "does not decode", id="a stage below none"
        ),
    ],
)
def test_a_standing_that_nobody_tells_breaks_the_link(turns: Turns, told: Told, why: str) -> None:
    ask(turns)
    turns.pipeline.unlink()
    rings = turns.linked.link()

    def lie() -> None:
        asked = decode_resume_state(rings[1].expect(FrameType.RESUME_STATE, WAIT_S))
        turns.tail.send(FrameType.RESUME_STATE, encode_resume_state(told(asked)))

    lying = turns.linked.pool.submit(lie)
    with pytest.raises(ProtocolError, match=why):
        turns.pipeline.link(rings[0])
    lying.result(WAIT_S)


# ---- figures


def test_figures_that_were_asked_for_come_over_new_links_too(turns: Turns) -> None:
    """An answer may wait with its end until they come."""
    asked = 2
    for _ in range(asked):
        assert turns.pipeline.ask_samples()
    turns.serve(1)
    turns.link()
    assert not turns.pipeline.is_at_rest
    for _ in range(asked):
        turns.serve(1)
        turns.serve(2)
        assert turns.linked.head.wait((), WAIT_S)
        assert turns.pipeline.take() is None
    for _ in range(asked):
        assert not turns.pipeline.is_at_rest, "they wait to be taken"
        samples = turns.pipeline.take_samples()
        assert samples
        assert [sample.index for sample in samples] == [0, 1, 2]
    assert turns.pipeline.is_at_rest


@pytest.mark.parametrize("turns", ["reverse"], indirect=True)
def test_a_head_with_the_last_layers_counts_what_it_computed_before_its_figures_were_back(turns: Turns) -> None:
    ask(turns)
    assert turns.pipeline.ask_samples()
    turns.answers(len(PROMPT) + 1)
    deadline = monotonic() + WAIT_S
    while not (samples := turns.pipeline.take_samples()):
        assert monotonic() < deadline
        for number in (1, 2):
            if turns.linked.rings[number].has_frame():
                turns.serve(number)
        assert turns.pipeline.take() is None
    assert samples[0].compute_s == turns.stages[0].meter.compute.seconds > 0


def test_what_the_stages_counted_outlives_their_links(turns: Turns) -> None:
    ask(turns)
    turns.serve(1)
    turns.serve(2)
    before = [ring.sample().frames for ring in turns.linked.rings]
    turns.link()
    assert all(before)
    assert all(ring.sample().frames > count for ring, count in zip(turns.linked.rings, before, strict=True))


def test_no_stage_speaks_for_the_head(turns: Turns) -> None:
    turns.pipeline.ask_samples()
    lies = [StageSample(index=number, compute_s=5.0) for number in range(3)]
    turns.tail.send(FrameType.TELEMETRY, msgspec.msgpack.encode(lies))
    turns.pipeline.take()
    samples = turns.pipeline.take_samples()
    assert samples
    assert samples[0].compute_s < 5.0
    assert samples[1:] == lies[1:]


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_figures_of_more_or_fewer_stages_break_the_link(turns: Turns, count: int) -> None:
    turns.pipeline.ask_samples()
    lies = [StageSample(index=number) for number in range(count)]
    turns.tail.send(FrameType.TELEMETRY, msgspec.msgpack.encode(lies))
    with pytest.raises(ProtocolError, match="samples came from 3 stages"):
        turns.pipeline.take()


def test_worn_keys_are_told_by_whoever_has_them(turns: Turns) -> None:
    turns.pipeline.ask_samples()
    told = [StageSample(index=0), StageSample(index=1), StageSample(index=2, key=KEY_LIMITS)]
    turns.tail.send(FrameType.TELEMETRY, msgspec.msgpack.encode(told))
    assert not turns.pipeline.needs_new_keys
    turns.pipeline.take()
    assert turns.pipeline.needs_new_keys
