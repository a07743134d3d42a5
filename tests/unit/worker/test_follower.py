"""A stage other than the head, over real links: each step once, also with repeated, misplaced or impossible frames.

The test plays the head: its own layers are real.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any, NamedTuple

import mlx.core as mx
import pytest

from core.engine.ring_work import Copy, Drop, Extend, Keep, Merge, New, Op, Trim
from core.errors import LinkLost, Problem, ProtocolError
from core.link.arrays import encode_arrays
from core.link.frames import FrameType
from core.worker.follower import HANDLES_LIMIT, STEPS_LIMIT, Follower
from core.worker.messages import TraceSpan
from core.worker.ring import read_break, read_samples
from core.worker.stage import LoadedStage
from core.worker.work_frames import (
    ResumeState,
    WorkFrame,
    decode_problem,
    decode_resume_state,
    encode_orders,
    encode_problem,
    encode_resume_state,
    read_work,
)
from tests.support.grammars import BYTES
from tests.support.linked import WAIT_S, Linked
from tests.support.made import build, twin
from tests.support.rings import private_ring

pytestmark = pytest.mark.slow

RUN = b"r" * 16
CUT = 3
WIDE = b"\x01\x01\x02" + bytes(4) + b"\xff" * 4  # no bytes, and 2^32 - 1 columns


class StagePair:
    """The head of a ring of two, and its follower."""

    def __init__(self, linked: Linked, head: LoadedStage, stage: LoadedStage) -> None:
        self.linked, self.head, self.stage = linked, head, stage
        self.follower = Follower(stage, linked.plan, 1, BYTES)
        self.step = 1

    def serve(self) -> None:
        """Serve the newest frame."""
        ring = self.linked.rings[1]
        assert ring.wait((), WAIT_S)
        self.follower.serve(ring, ring.receive())

    def answer(self) -> WorkFrame:
        """The frame that the follower sent on last."""
        work, _ = read_work(self.linked.head.receive())
        return work._replace(payload=(bytes(work.payload[0]),))

    def ask(self, work: WorkFrame, base: int | None = None) -> WorkFrame:
        """Send a frame unchanged and return the follower's answer; by default no earlier frame is awaited."""
        self.linked.head.send_work(work, work.step if base is None else base)
        self.serve()
        return self.answer()

    def next(self, work: WorkFrame) -> WorkFrame:
        """Ask with the next step."""
        self.step += 1
        return self.ask(work._replace(step=self.step - 1))

    def compose(self, *ops: Op) -> WorkFrame:
        """Compose on both stages."""
        self.head.compose(ops)
        return self.next(composition(*ops))

    def feed(self, handle: int, *tokens: int, rows: int = 1, quiet: bool = False) -> WorkFrame:
        """Feed these tokens of each row through both stages."""
        return self.next(self.boundary(handle, *tokens, rows=rows, quiet=quiet))

    def boundary(self, handle: int, *tokens: int, rows: int = 1, quiet: bool = False) -> WorkFrame:
        """The frame that leaves the head."""
        position = self.head.position(handle)
        arrays = self.head.embed(handle, mx.array([tokens] * rows))
        parts = encode_arrays(arrays)
        return WorkFrame(FrameType.ACTIVATION, 0, handle, RUN, position, rows * len(tokens), quiet, payload=parts)

    def stand(self, run: bytes, base: int) -> ResumeState:
        """Ask whether it knows `run`."""
        self.linked.head.send(FrameType.RESUME_STATE, encode_resume_state(ResumeState(run, base)))
        self.serve()
        return decode_resume_state(self.linked.head.expect(FrameType.RESUME_STATE, WAIT_S))

    def computed(self) -> list[int]:
        """Steps that were computed since the last call."""
        return [span.step for span in self.spans()]

    def spans(self) -> list[TraceSpan]:
        return self.stage.meter.take_spans()


def composition(*ops: Op) -> WorkFrame:
    return WorkFrame(FrameType.COMPOSE, 0, payload=encode_orders(ops))


def problem_of(reply: WorkFrame) -> Problem:
    assert reply.kind is FrameType.ERROR
    return decode_problem(reply.payload[0])[0]


class Kind(NamedTuple):
    """A model, and the kind of cache on the follower."""

    variant: str = "llama"
    kv_bits: int | None = None


built = cache(build)


@pytest.fixture(params=[Kind()], ids=[""])
def pair(request: pytest.FixtureRequest) -> Iterator[StagePair]:
    kind: Kind = request.param
    whole = built(kind.variant)
    head, plain = private_ring(whole, lambda: twin(kind.variant, whole), (CUT,)).stages
    with ExitStack() as stack:
        linked = Linked(stack, 2, row_bytes=[s.layers.incoming_bytes_per_token for s in (head, plain)])
        linked.link()
        yield StagePair(linked, head, LoadedStage(plain.layers, plain.meter, kind.kv_bits))


@contextmanager
def broken(stage: LoadedStage) -> Iterator[None]:
    """Give a layer weights of a shape that can't be multiplied."""
    model: Any = stage.layers.model
    layer = model.layers[CUT + 1].mlp.up_proj
    before, layer.weight = layer.weight, mx.zeros((7, 7))
    try:
        yield
    finally:
        layer.weight = before


# ---- each step once


@pytest.mark.parametrize("kind", ["composition", "chunk", "step"])
@pytest.mark.promise("P10")
def test_a_repeated_step_is_answered_alike_and_computed_once(pair: StagePair, kind: str) -> None:
    pair.compose(New(1))
    pair.computed()
    work = composition(New(2)) if kind == "composition" else pair.boundary(1, 5, 6, quiet=kind == "chunk")
    work = work._replace(step=2)
    first = pair.ask(work)
    expected = {"composition": FrameType.COMPOSE, "chunk": FrameType.ACK, "step": FrameType.ACTIVATION}
    assert (first.kind, first.step) == (expected[kind], 2)
    for _ in range(3):
        assert pair.ask(work) == first
    assert pair.computed() == [2]
    assert pair.stage.position(1) == (0 if kind == "composition" else 2)


def test_all_that_is_out_is_repeated_in_order_after_new_links(pair: StagePair) -> None:
    frames = [composition(New(1))._replace(step=1)]
    pair.head.compose([New(1)])
    frames += [pair.boundary(1, 5 + n)._replace(step=2 + n) for n in range(4)]
    first = [pair.ask(frame, 1) for frame in frames[:3]]
    pair.linked.link()
    again = [pair.ask(frame, 1) for frame in frames]
    assert again[:3] == first
    assert pair.computed() == [1, 2, 3, 4, 5]


def test_what_the_head_has_its_answer_to_is_forgotten(pair: StagePair) -> None:
    pair.compose(New(1))
    old = pair.boundary(1, 5)._replace(step=2)
    pair.ask(old, 1)
    assert len(pair.follower._replies._kept) == 2
    pair.ask(pair.boundary(1, 6)._replace(step=3), 3)
    assert len(pair.follower._replies._kept) == 1
    with pytest.raises(ProtocolError, match="came once more"):
        pair.ask(old, 1)


BAD = [
    pytest.param(lambda b: (b.boundary(1, 5)._replace(step=4), 3), "Step 4 came after step 2", id="a gap"),
    pytest.param(lambda b: (b.boundary(1, 5)._replace(step=3), 4), "while step 4 was the first one out", id="below"),
    pytest.param(lambda b: (b.boundary(1, 5)._replace(step=2**64 - 1), 0), "more than a head", id="far ahead"),
    pytest.param(lambda b: (b.boundary(1, 5)._replace(step=3, handle=7), 3), "Handle 7 holds no rows", id="unknown"),
    pytest.param(
        lambda b: (b.boundary(1, 5)._replace(step=3, position=9), 3), "position 9 came where 2", id="position"
    ),
    pytest.param(lambda b: (b.boundary(1, 5)._replace(step=3, payload=[b"\xff"]), 3), "claims 255", id="no arrays"),
    pytest.param(lambda b: (b.boundary(1, 5)._replace(step=3, payload=[WIDE]), 3), "an array of shape", id="wide"),
    pytest.param(lambda b: (WorkFrame(FrameType.ACTIVATION, 3, 1), 3), "ends too soon", id="nothing"),
    pytest.param(lambda b: (composition(New(1))._replace(step=3), 3), "is there already", id="new twice"),
    pytest.param(lambda b: (composition(Keep(1, (0,)))._replace(step=3), 3), "Only a batch", id="keep of a row"),
    pytest.param(lambda b: (composition(Merge(2, (1, 1)))._replace(step=3), 3), "a handle twice", id="merge twice"),
    pytest.param(lambda b: (composition(Trim(1, 3))._replace(step=3), 3), "can't be trimmed off 2", id="trim"),
    pytest.param(lambda b: (WorkFrame(FrameType.COMPOSE, 3, payload=[b"\xc1"]), 3), "not decode", id="composition"),
    pytest.param(lambda b: (WorkFrame(FrameType.ACK, 3), 3), "does not belong on a data link", id="an answer"),
    pytest.param(lambda b: (WorkFrame(FrameType.TOKEN, 3), 3), "does not belong on a data link", id="another frame"),
]


@pytest.mark.parametrize(("make", "said"), BAD)
def test_what_no_honest_head_sends_breaks_the_link_and_changes_nothing(pair: StagePair, make: Any, said: str) -> None:
    pair.compose(New(1))
    pair.feed(1, 8, 9)
    with head_unmoved(pair):
        work, base = make(pair)
        with pytest.raises(ProtocolError, match=said):
            pair.ask(work, base)
    pair.linked.link()
    assert pair.stand(b"", 3).lost == (), "it stands where it stood"
    assert pair.feed(1, 5).kind is FrameType.ACTIVATION


@contextmanager
def head_unmoved(pair: StagePair) -> Iterator[None]:
    """Undo the head's own work at the end, and check that the stage did not move."""
    position = pair.head.position(1)
    yield
    if pair.head.position(1) > position:
        pair.head.compose([Trim(1, pair.head.position(1) - position)])
    assert (pair.stage.handles, pair.stage.position(1)) == (1, position)


# ---- impossible work


def test_an_error_of_a_stage_before_passes_and_its_step_counts(pair: StagePair) -> None:
    pair.compose(New(1))
    told = Problem(kind="StageFailed", what="mac9 is on fire.")
    passed = pair.next(WorkFrame(FrameType.ERROR, 0, 1, RUN, payload=encode_problem(told)))
    assert (passed.step, passed.handle, problem_of(passed)) == (2, 1, told)
    assert pair.ask(passed) == passed
    assert pair.feed(1, 5).kind is FrameType.ACTIVATION


def test_a_step_that_cannot_be_computed_taints_its_handle_and_no_other(pair: StagePair) -> None:
    pair.compose(New(1), New(2), New(3))
    pair.feed(2, 7, 8, quiet=True)
    with broken(pair.stage):
        failed = pair.feed(1, 5, 6, quiet=True)
    told = problem_of(failed)
    assert told.kind == "StageFailed"
    assert told.what.startswith("mac1: MLX could not compute this stage: ")
    pair.computed()

    assert problem_of(pair.feed(1, 9)) == told, "the chunks behind it"
    assert pair.computed() == []
    assert pair.compose(Merge(4, (1, 3))).kind is FrameType.COMPOSE
    assert problem_of(pair.feed(4, 9, rows=2)) == told, "the lane that it joined"
    pair.compose(Copy(5, 4), Keep(4, (0,)), Keep(5, (1,)))
    assert problem_of(pair.feed(5, 9)) == told, "and what was split off that"

    again = pair.feed(2, 9)
    assert again.kind is FrameType.ACTIVATION, "others go on"
    assert pair.stage.position(2) == 3
    pair.compose(Drop(4), Drop(5), Drop(1), Drop(2))
    assert (pair.stage.handles, pair.head.handles) == (0, 0)
    pair.compose(New(1))
    pair.feed(1, 7, 8, quiet=True)
    assert pair.feed(1, 9).payload == again.payload, "a handle that was dropped is healed"
    assert not pair.follower._execution._tainted


def test_a_batch_that_takes_a_tainted_row_is_lost_and_its_memory_is_given_back(pair: StagePair) -> None:
    pair.compose(New(1), New(2), New(3))
    pair.compose(Merge(4, (1, 2)))
    with broken(pair.stage):
        told = problem_of(pair.feed(3, 5, quiet=True))
    pair.compose(Merge(5, (3,)), Extend(4, 5))
    assert problem_of(pair.feed(4, 9, rows=3)) == told
    pair.compose(Drop(4))
    assert pair.stage.handles == 0


@pytest.mark.parametrize("pair", [Kind("llama sliding")], ids=["window"], indirect=True)
def test_a_composition_that_cannot_be_done_leaves_nothing_of_what_it_names(pair: StagePair) -> None:
    """A window that is full can't be trimmed."""
    pair.compose(New(1), New(2), New(3))
    pair.feed(1, *range(20, 30), quiet=True)
    failed = pair.next(composition(Drop(2), Copy(9, 1), Trim(1, 1)))
    told = problem_of(failed)
    assert told.what == "mac1: This model's caches hold too much for the last tokens to be taken off."
    assert pair.ask(composition(New(7))._replace(step=failed.step)) == failed, "not tried again"
    assert pair.stage.handles == 1, "3 alone"
    pair.head.compose([Drop(2), Copy(9, 1)])
    assert [problem_of(pair.feed(handle, 5)) for handle in (9, 1)] == [told, told]
    assert pair.feed(3, 5).kind is FrameType.ACTIVATION
    pair.compose(*(Drop(handle) for handle in (9, 3, 1)))
    assert pair.stage.handles == 0
    assert not pair.follower._execution._tainted


@pytest.mark.parametrize("pair", [Kind("llama", kv_bits=8)], ids=["kv8"], indirect=True)
def test_a_cache_that_mlx_lm_cannot_keep_is_an_answer_too(pair: StagePair) -> None:
    """Heads of 32 have no groups of 64."""
    pair.compose(New(1))
    assert problem_of(pair.feed(1, 5)).what.startswith("mac1: mlx-lm cannot keep this model's cache in 8 bits")


# ---- remembered replies, by run


def test_a_run_that_it_does_not_know_begins_anew(pair: StagePair) -> None:
    assert pair.stand(RUN, 1) == ResumeState(RUN, 1, (1,)), "it knows nothing yet"
    pair.compose(New(1))
    pair.feed(1, 5)
    assert pair.stand(RUN, 3) == ResumeState(RUN, 3)
    assert pair.stand(RUN, 2) == ResumeState(RUN, 2)
    assert pair.stage.handles == 1
    assert pair.stand(RUN, 4) == ResumeState(RUN, 4, (1,)), "a step that it has not done was answered"
    assert pair.stage.handles == 0
    assert pair.stand(b"another", 7) == ResumeState(b"another", 7, (1,))
    pair.head.reset()
    pair.step = 7
    assert pair.compose(New(1)).kind is FrameType.COMPOSE


def test_who_lost_what_before_it_is_told_on(pair: StagePair) -> None:
    pair.linked.head.send(FrameType.RESUME_STATE, encode_resume_state(ResumeState(RUN, 1, (5,))))
    pair.serve()
    assert decode_resume_state(pair.linked.head.expect(FrameType.RESUME_STATE, WAIT_S)).lost == (5, 1)


def test_figures_go_round_and_each_stage_adds_its_own(pair: StagePair) -> None:
    pair.linked.head.send_samples([])
    pair.serve()
    samples = read_samples(pair.linked.head.expect(FrameType.TELEMETRY, WAIT_S))
    assert [sample.index for sample in samples] == [0, 1]


def test_why_the_ring_breaks_is_passed_on(pair: StagePair) -> None:
    pair.linked.head.send_break(LinkLost("The cable is out.").problem)
    pair.serve()
    assert str(read_break(pair.linked.head.receive())).startswith("The cable is out.")


# ---- memory that a hostile head tries to fill


def test_no_head_makes_it_hold_handles_without_end(pair: StagePair) -> None:
    for step in range(1, HANDLES_LIMIT + 1):
        pair.ask(composition(New(2**32 - step))._replace(step=step))
    for ops in ([New(1)], [Drop(n) for n in range(HANDLES_LIMIT)]):
        with pytest.raises(ProtocolError, match="too many"):
            pair.ask(composition(*ops)._replace(step=HANDLES_LIMIT + 1))
        pair.linked.link()
    assert pair.stage.handles == HANDLES_LIMIT


def test_no_head_makes_it_keep_replies_without_end(pair: StagePair) -> None:
    pair.compose(New(1))
    for step in range(2, STEPS_LIMIT + 2):
        pair.ask(composition()._replace(step=step), 1)
    with pytest.raises(ProtocolError, match="more than a head keeps in flight"):
        pair.ask(composition()._replace(step=STEPS_LIMIT + 2), 1)
    assert len(pair.follower._replies._kept) == STEPS_LIMIT + 1
