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

RUN = b"r" * 16
CUT = 3
WIDE = b"\x01\x01\x02" + bytes(4) + b"\xff" * 4  # no bytes, and 2^32 - 1 columns


class Beside:
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
def beside(request: pytest.FixtureRequest) -> Iterator[Beside]:
    kind: Kind = request.param
    whole = built(kind.variant)
    head, plain = private_ring(whole, lambda: twin(kind.variant, whole), (CUT,)).stages
    with ExitStack() as stack:
        linked = Linked(stack, 2, row_bytes=[s.layers.incoming_bytes_per_token for s in (head, plain)])
        linked.link()
        yield Beside(linked, head, LoadedStage(plain.layers, plain.meter, kind.kv_bits))


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
def test_a_repeated_step_is_answered_alike_and_computed_once(beside: Beside, kind: str) -> None:
    beside.compose(New(1))
    beside.computed()
    work = composition(New(2)) if kind == "composition" else beside.boundary(1, 5, 6, quiet=kind == "chunk")
    work = work._replace(step=2)
    first = beside.ask(work)
    expected = {"composition": FrameType.COMPOSE, "chunk": FrameType.ACK, "step": FrameType.ACTIVATION}
    assert (first.kind, first.step) == (expected[kind], 2)
    for _ in range(3):
        assert beside.ask(work) == first
    assert beside.computed() == [2]
    assert beside.stage.position(1) == (0 if kind == "composition" else 2)


def test_all_that_is_out_is_repeated_in_order_after_new_links(beside: Beside) -> None:
    frames = [composition(New(1))._replace(step=1)]
    beside.head.compose([New(1)])
    frames += [beside.boundary(1, 5 + n)._replace(step=2 + n) for n in range(4)]
    first = [beside.ask(frame, 1) for frame in frames[:3]]
    beside.linked.link()
    again = [beside.ask(frame, 1) for frame in frames]
    assert again[:3] == first
    assert beside.computed() == [1, 2, 3, 4, 5]


def test_what_the_head_has_its_answer_to_is_forgotten(beside: Beside) -> None:
    beside.compose(New(1))
    old = beside.boundary(1, 5)._replace(step=2)
    beside.ask(old, 1)
    assert len(beside.follower._replies._kept) == 2
    beside.ask(beside.boundary(1, 6)._replace(step=3), 3)
    assert len(beside.follower._replies._kept) == 1
    with pytest.raises(ProtocolError, match="came once more"):
        beside.ask(old, 1)


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
def test_what_no_honest_head_sends_breaks_the_link_and_changes_nothing(beside: Beside, make: Any, said: str) -> None:
    beside.compose(New(1))
    beside.feed(1, 8, 9)
    with beside_unmoved(beside):
        work, base = make(beside)
        with pytest.raises(ProtocolError, match=said):
            beside.ask(work, base)
    beside.linked.link()
    assert beside.stand(b"", 3).lost == (), "it stands where it stood"
    assert beside.feed(1, 5).kind is FrameType.ACTIVATION


@contextmanager
def beside_unmoved(beside: Beside) -> Iterator[None]:
    """Undo the head's own work at the end, and check that the stage did not move."""
    position = beside.head.position(1)
    yield
    if beside.head.position(1) > position:
        beside.head.compose([Trim(1, beside.head.position(1) - position)])
    assert (beside.stage.handles, beside.stage.position(1)) == (1, position)


# ---- impossible work


def test_an_error_of_a_stage_before_passes_and_its_step_counts(beside: Beside) -> None:
    beside.compose(New(1))
    told = Problem(kind="StageFailed", what="mac9 is on fire.")
    passed = beside.next(WorkFrame(FrameType.ERROR, 0, 1, RUN, payload=encode_problem(told)))
    assert (passed.step, passed.handle, problem_of(passed)) == (2, 1, told)
    assert beside.ask(passed) == passed
    assert beside.feed(1, 5).kind is FrameType.ACTIVATION


def test_a_step_that_cannot_be_computed_taints_its_handle_and_no_other(beside: Beside) -> None:
    beside.compose(New(1), New(2), New(3))
    beside.feed(2, 7, 8, quiet=True)
    with broken(beside.stage):
        failed = beside.feed(1, 5, 6, quiet=True)
    told = problem_of(failed)
    assert told.kind == "StageFailed"
    assert told.what.startswith("mac1: MLX could not compute this stage: ")
    beside.computed()

    assert problem_of(beside.feed(1, 9)) == told, "the chunks behind it"
    assert beside.computed() == []
    assert beside.compose(Merge(4, (1, 3))).kind is FrameType.COMPOSE
    assert problem_of(beside.feed(4, 9, rows=2)) == told, "the lane that it joined"
    beside.compose(Copy(5, 4), Keep(4, (0,)), Keep(5, (1,)))
    assert problem_of(beside.feed(5, 9)) == told, "and what was split off that"

    again = beside.feed(2, 9)
    assert again.kind is FrameType.ACTIVATION, "others go on"
    assert beside.stage.position(2) == 3
    beside.compose(Drop(4), Drop(5), Drop(1), Drop(2))
    assert (beside.stage.handles, beside.head.handles) == (0, 0)
    beside.compose(New(1))
    beside.feed(1, 7, 8, quiet=True)
    assert beside.feed(1, 9).payload == again.payload, "a handle that was dropped is healed"
    assert not beside.follower._execution._tainted


def test_a_batch_that_takes_a_tainted_row_is_lost_and_its_memory_is_given_back(beside: Beside) -> None:
    beside.compose(New(1), New(2), New(3))
    beside.compose(Merge(4, (1, 2)))
    with broken(beside.stage):
        told = problem_of(beside.feed(3, 5, quiet=True))
    beside.compose(Merge(5, (3,)), Extend(4, 5))
    assert problem_of(beside.feed(4, 9, rows=3)) == told
    beside.compose(Drop(4))
    assert beside.stage.handles == 0


@pytest.mark.parametrize("beside", [Kind("llama sliding")], ids=["window"], indirect=True)
def test_a_composition_that_cannot_be_done_leaves_nothing_of_what_it_names(beside: Beside) -> None:
    """A window that is full can't be trimmed."""
    beside.compose(New(1), New(2), New(3))
    beside.feed(1, *range(20, 30), quiet=True)
    failed = beside.next(composition(Drop(2), Copy(9, 1), Trim(1, 1)))
    told = problem_of(failed)
    assert told.what == "mac1: This model's caches hold too much for the last tokens to be taken off."
    assert beside.ask(composition(New(7))._replace(step=failed.step)) == failed, "not tried again"
    assert beside.stage.handles == 1, "3 alone"
    beside.head.compose([Drop(2), Copy(9, 1)])
    assert [problem_of(beside.feed(handle, 5)) for handle in (9, 1)] == [told, told]
    assert beside.feed(3, 5).kind is FrameType.ACTIVATION
    beside.compose(*(Drop(handle) for handle in (9, 3, 1)))
    assert beside.stage.handles == 0
    assert not beside.follower._execution._tainted


@pytest.mark.parametrize("beside", [Kind("llama", kv_bits=8)], ids=["kv8"], indirect=True)
def test_a_cache_that_mlx_lm_cannot_keep_is_an_answer_too(beside: Beside) -> None:
    """Heads of 32 have no groups of 64."""
    beside.compose(New(1))
    assert problem_of(beside.feed(1, 5)).what.startswith("mac1: mlx-lm cannot keep this model's cache in 8 bits")


# ---- remembered replies, by run


def test_a_run_that_it_does_not_know_begins_anew(beside: Beside) -> None:
    assert beside.stand(RUN, 1) == ResumeState(RUN, 1, (1,)), "it knows nothing yet"
    beside.compose(New(1))
    beside.feed(1, 5)
    assert beside.stand(RUN, 3) == ResumeState(RUN, 3)
    assert beside.stand(RUN, 2) == ResumeState(RUN, 2)
    assert beside.stage.handles == 1
    assert beside.stand(RUN, 4) == ResumeState(RUN, 4, (1,)), "a step that it has not done was answered"
    assert beside.stage.handles == 0
    assert beside.stand(b"another", 7) == ResumeState(b"another", 7, (1,))
    beside.head.reset()
    beside.step = 7
    assert beside.compose(New(1)).kind is FrameType.COMPOSE


def test_who_lost_what_before_it_is_told_on(beside: Beside) -> None:
    beside.linked.head.send(FrameType.RESUME_STATE, encode_resume_state(ResumeState(RUN, 1, (5,))))
    beside.serve()
    assert decode_resume_state(beside.linked.head.expect(FrameType.RESUME_STATE, WAIT_S)).lost == (5, 1)


def test_figures_go_round_and_each_stage_adds_its_own(beside: Beside) -> None:
    beside.linked.head.send_samples([])
    beside.serve()
    samples = read_samples(beside.linked.head.expect(FrameType.TELEMETRY, WAIT_S))
    assert [sample.index for sample in samples] == [0, 1]


def test_why_the_ring_breaks_is_passed_on(beside: Beside) -> None:
    beside.linked.head.send_break(LinkLost("The cable is out.").problem)
    beside.serve()
    assert str(read_break(beside.linked.head.receive())).startswith("The cable is out.")


# ---- memory that a hostile head tries to fill


def test_no_head_makes_it_hold_handles_without_end(beside: Beside) -> None:
    for step in range(1, HANDLES_LIMIT + 1):
        beside.ask(composition(New(2**32 - step))._replace(step=step))
    for ops in ([New(1)], [Drop(n) for n in range(HANDLES_LIMIT)]):
        with pytest.raises(ProtocolError, match="too many"):
            beside.ask(composition(*ops)._replace(step=HANDLES_LIMIT + 1))
        beside.linked.link()
    assert beside.stage.handles == HANDLES_LIMIT


def test_no_head_makes_it_keep_replies_without_end(beside: Beside) -> None:
    beside.compose(New(1))
    for step in range(2, STEPS_LIMIT + 2):
        beside.ask(composition()._replace(step=step), 1)
    with pytest.raises(ProtocolError, match="more than a head keeps in flight"):
        beside.ask(composition()._replace(step=STEPS_LIMIT + 2), 1)
    assert len(beside.follower._replies._kept) == STEPS_LIMIT + 1
