"""Frames between ranks over real links: token ids before anything is computed, and acknowledgements back.

Each rank has the whole model here, so that no group is needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache, partial
from time import monotonic
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from uuid import uuid4

import mlx.core as mx
import numpy as np
import pytest

from core.engine.requests import Request
from core.engine.ring_work import New
from core.errors import GroupFailed
from core.link.arrays import decode_arrays, encode_arrays
from core.link.frames import FrameType
from core.models.slicing.probe import ModelProbe
from core.models.slicing.slots import Slice
from core.requests.trace import Phase
from core.worker.follower import Follower
from core.worker.head import Head
from core.worker.messages import Report, Token
from core.worker.pipe import Inbox
from core.worker.pipeline import Pipeline
from core.worker.stage import LoadedStage
from core.worker.work_frames import NO_REQUEST, TOKEN_TYPES, WorkFrame, encode_problem, read_work
from tests.support.delays import STEPS, delayed, slow, slowed
from tests.support.grammars import BYTES
from tests.support.linked import WAIT_S, Linked
from tests.support.made import build, twin
from tests.support.worker_ring import a_request

pytestmark = pytest.mark.slow

built = cache(build)
UID = uuid4().bytes
PROMPT = (7, 11, 13)


class Ranks:
    """A head and two followers, which serve when the test lets them."""

    def __init__(self, linked: Linked) -> None:
        whole = built("llama")
        probe = ModelProbe(whole)
        slices = [Slice(twin("llama", whole), probe, 0, probe.layers, embed=True, output=True) for _ in range(3)]
        self.stages = [LoadedStage(layers, meter) for layers, meter in zip(slices, linked.meters, strict=True)]
        self.linked = linked
        self.pipeline = Pipeline(self.stages[0], linked.plan, WAIT_S)
        self.followers = [Follower(self.stages[n], linked.plan, n, BYTES) for n in (1, 2)]
        self.pipeline._ring = linked.head

    def come(self, number: int) -> WorkFrame:
        """Let a rank serve its next frame, and return it."""
        ring = self.linked.rings[number]
        assert ring.wait((), WAIT_S)
        frame = ring.receive()
        work, _ = read_work(frame)
        kept = work._replace(payload=(bytes(work.payload[0]),))
        if number:
            self.followers[number - 1].serve(ring, frame)
        return kept

    def tokens(self, *tokens: int, quiet: bool = False) -> Any:
        """Give all ranks tokens of row 1; returns the head's logits."""
        self.pipeline.forward(1, mx.array([tokens]), quiet=quiet, request=UID, work=tokens)
        answer = self.pipeline.take()
        assert answer
        assert answer.work == tokens
        return np.array(answer.logits)

    def begin(self) -> None:
        """Start row 1 on every rank."""
        self.pipeline.compose([New(1)], "new")
        answer = self.pipeline.take()
        assert answer
        assert answer.work == "new"
        for number in (1, 2):
            self.come(number)
        assert self.linked.head.wait((), WAIT_S)
        assert self.pipeline.take() is None, "an acknowledgement"

    def computed(self, number: int) -> list[str]:
        """Kinds of forwards that a rank has computed since the last call."""
        return [span.kind for span in self.stages[number].meter.take_spans() if span.kind != "compose"]


@pytest.fixture
def idle() -> Iterator[Ranks]:
    with ExitStack() as stack:
        linked = Linked(stack, 3, topology="tensor", row_bytes=[0, 0, 0])
        linked.link()
        yield Ranks(linked)


@pytest.fixture
def ranks(idle: Ranks) -> Ranks:
    idle.begin()
    return idle


class Answered(NamedTuple):
    """A plain request: its tokens, and the frames of its work at the first follower."""

    tokens: tuple[int, ...]
    frames: list[WorkFrame]

    @property
    def told(self) -> list[Any]:
        """The token ids in the frames."""
        return [decode_arrays(memoryview(frame.payload[0]))[0].tolist() for frame in self.frames]


class Asking:
    """The head of ranks as in a worker; it gets no other message, and it never waits."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks, self._said = ranks, list[Report]()
        self._head = Head(ranks.linked.plan, ranks.pipeline, self._said.append, BYTES, draft=0)

    def answered(self, request: Request) -> Answered:
        """Let all ranks serve until the request is done."""
        self._head.submit(request)
        said, frames, until = len(self._said), list[WorkFrame](), monotonic() + WAIT_S
        reads, writes = os.pipe()
        os.write(writes, b"!")
        inbox = cast(Inbox, SimpleNamespace(fileno=lambda: reads))
        while self._head.is_busy:
            assert monotonic() < until
            self._head.turn(inbox)
            frames += [frame for number in (1, 2) for frame in self._served(number) if number == 1]
        os.close(reads)
        os.close(writes)
        tokens = tuple(told.token for told in self._said[said:] if isinstance(told, Token))
        return Answered(tokens, frames)

    def _served(self, number: int) -> Iterator[WorkFrame]:
        ring = self._ranks.linked.rings[number]
        while ring.wait((), 0.0):
            frame = ring.receive()
            if frame.header.type in TOKEN_TYPES:
                work, _ = read_work(frame)
                yield work._replace(payload=(bytes(work.payload[0]),))
            self._ranks.followers[number - 1].serve(ring, frame)


@pytest.mark.parametrize(
    ("prompt", "most", "ends"),
    [
        pytest.param((1, 2, 3, 4), 5, "never", id="five"),
        pytest.param((1, 2, 3), 3, "never", id="three"),
        pytest.param((1, 2), 5, "at once", id="ends-at-once"),
        pytest.param((7, 11, 13), 2, "never", id="two"),
        pytest.param((7, 11, 13), 1, "never", id="one"),
    ],
)
def test_a_plain_request_is_its_prompt_and_a_step_for_every_token(
    idle: Ranks, prompt: tuple[int, ...], most: int, ends: str
) -> None:
    """The last step is final: no rank takes one forward more than there are tokens."""
    asking = Asking(idle)
    first = asking.answered(a_request(prompt, max_tokens=most))
    request = a_request(prompt, max_tokens=most, eos=first.tokens[:1] if ends == "at once" else (99,))
    again = asking.answered(request)
    count = 1 if ends == "at once" else most
    assert again.tokens == first.tokens[:count]
    assert len(again.tokens) == count
    kinds = [FrameType.PROMPT_TOKENS, *[FrameType.STEP_TOKEN] * most]
    assert [frame.kind for frame in first.frames] == kinds
    assert [frame.kind for frame in again.frames] == kinds[: 1 + count]
    assert first.told == [[list(prompt[:-1])], [[prompt[-1]]], *([[token]] for token in first.tokens[:-1])]
    assert again.told == first.told[: 1 + count]
    assert again.frames[0].request == bytes.fromhex(request.request_id) != first.frames[0].request
    # steps are of a lane, whose rows come from the compositions
    assert {frame.request for frame in (*first.frames[1:], *again.frames[1:])} == {NO_REQUEST}


@pytest.mark.parametrize(
    ("phase", "where"),
    [
        pytest.param("to_i32", "core.engine.scheduler.Scheduler.next", id="to_i32"),
        pytest.param("allgather", "", id="allgather"),
        pytest.param("logits_compute", "core.worker.token_choice.choose_all", id="logits_compute"),
        pytest.param("readback", "core.engine.sampling.NextTokens.read", id="readback"),
    ],
)
def test_what_slows_the_head_is_seen_in_its_own_phase_of_every_step(
    idle: Ranks, monkeypatch: pytest.MonkeyPatch, phase: Phase, where: str
) -> None:
    asking = Asking(idle)
    asking.answered(a_request(PROMPT, max_tokens=2))
    if where:
        slowed(monkeypatch, where)
    else:  # the others are in this process, too, and fast
        slow(monkeypatch, idle.linked.head._sender, "_transmit")
    request = partial(a_request, PROMPT, max_tokens=STEPS)
    # the other ranks compute in this thread, and the head waits for them: on a slow machine for 20 ms, too
    assert delayed(idle.stages[0].meter, lambda: asking.answered(request()), aside="recv_wait") == {phase}


def asked(ranks: Ranks) -> None:
    """Send a prompt and two steps, which give two tokens."""
    ranks.tokens(*PROMPT[:-1], quiet=True)
    for token in (PROMPT[-1], 99):
        ranks.tokens(token)


def test_all_ranks_get_the_same_tokens_and_the_head_nothing_but_acknowledgements(ranks: Ranks) -> None:
    asked(ranks)
    one, two = ([ranks.come(number) for _ in range(3)] for number in (1, 2))
    assert [frame.kind for frame in one] == [FrameType.PROMPT_TOKENS, FrameType.STEP_TOKEN, FrameType.STEP_TOKEN]
    assert one == two
    assert {frame.request for frame in one} == {UID}
    assert [decode_arrays(memoryview(frame.payload[0]))[0].tolist() for frame in one] == [[[7, 11]], [[13]], [[99]]]
    back = [ranks.come(0) for _ in range(3)]
    assert [frame.kind for frame in back] == [FrameType.ACK] * 3
    assert {bytes(frame.payload[0]) for frame in back} == {b""}
    assert [ranks.computed(number) for number in range(3)] == [["chunk", "step", "step"]] * 3


def test_the_head_waits_for_no_acknowledgement(ranks: Ranks) -> None:
    asked(ranks)
    assert not ranks.pipeline.is_at_rest
    for number in (1, 2):
        for _ in range(3):
            ranks.come(number)
    while not ranks.pipeline.is_at_rest:
        assert ranks.linked.head.wait((), WAIT_S)
        assert ranks.pipeline.take() is None


def test_a_rank_hands_on_what_it_then_cannot_compute_and_ends(ranks: Ranks) -> None:
    model: Any = ranks.stages[1].layers.model
    model.layers[2].mlp.up_proj.weight = mx.zeros((7, 7))
    ranks.tokens(*PROMPT)
    with pytest.raises(GroupFailed, match="MLX could not compute"):
        ranks.come(1)
    assert ranks.come(2).kind is FrameType.STEP_TOKEN
    assert ranks.computed(2) == ["step"]


def test_what_comes_once_more_is_handed_on_and_not_computed(ranks: Ranks) -> None:
    ranks.tokens(*PROMPT)
    for again in (False, True):
        if again:
            ranks.pipeline._send_again(ranks.linked.head, ranks.pipeline._out.resend)
        for number in (1, 2):
            ranks.come(number)
            assert ranks.computed(number) == ([] if again else ["step"])


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x01", b"".join(encode_arrays([mx.array([[1 << 20]])])), b"".join(encode_arrays([mx.zeros((1, 2))]))],
)
def test_tokens_that_are_none_end_the_group(ranks: Ranks, payload: bytes) -> None:
    work = WorkFrame(FrameType.STEP_TOKEN, 2, 1, UID, 0, 1, payload=(payload,))
    ranks.linked.head.send_work(work, 1)
    with pytest.raises(GroupFailed):
        ranks.come(1)
    assert not ranks.linked.rings[2].has_frame()


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        pytest.param(FrameType.PROMPT_TOKENS, 1, id="a-prompt"),
        pytest.param(FrameType.STEP_TOKEN, 0, id="no-row"),
        pytest.param(FrameType.STEP_TOKEN, 7, id="other-rows"),
    ],
)
def test_only_a_step_of_the_rows_that_are_held_may_come_without_tokens(
    ranks: Ranks, kind: FrameType, rows: int
) -> None:
    layers = ranks.stages[1].layers
    layers.shares_tokens, layers._group = True, mx.distributed.init()  # of one rank
    ranks.linked.head.send_work(WorkFrame(kind, 2, 1, UID, 0, rows, quiet=kind is FrameType.PROMPT_TOKENS), 1)
    with pytest.raises(GroupFailed):
        ranks.come(1)


def test_a_rank_that_could_not_follow_a_composition_ends_the_group(ranks: Ranks) -> None:
    ranks.tokens(*PROMPT)
    problem = encode_problem(GroupFailed("No such row.").problem, [1])
    ranks.linked.rings[2].send_work(WorkFrame(FrameType.ERROR, 2, 1, payload=problem), 1)
    assert ranks.linked.head.wait((), WAIT_S)
    with pytest.raises(GroupFailed, match="No such row"):
        ranks.pipeline.take()


def test_a_head_that_cannot_reach_the_others_does_not_compute(ranks: Ranks) -> None:
    ranks.computed(0)
    ranks.linked.close()
    with pytest.raises(GroupFailed):
        ranks.tokens(*PROMPT)
    assert ranks.computed(0) == []
