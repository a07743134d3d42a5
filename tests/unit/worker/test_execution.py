"""Token ids from another Mac are checked before use: MLX reads beyond its arrays."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import mlx.core as mx
import pytest

from core.engine.ring_work import New
from core.errors import ProtocolError
from core.link.arrays import encode_arrays
from core.link.frames import FrameType
from core.worker.execution import tokens_in
from core.worker.follower import Follower
from core.worker.stage import LoadedStage
from core.worker.telemetry import StageMeter
from core.worker.work_frames import WorkFrame, encode_orders
from tests.support.grammars import BYTES
from tests.support.linked import WAIT_S, Linked
from tests.support.made import build, twin
from tests.support.rings import slices_of

VOCABULARY = 211
FALSE_TOKENS = [
    pytest.param([mx.array([[VOCABULARY]])], id="beyond the vocabulary"),
    pytest.param([mx.array([[-1]])], id="below zero"),
    pytest.param([mx.array([[3, 4, 2**31 - 1]])], id="one of several"),
    pytest.param([mx.array([[1.0]])], id="no whole number"),
    pytest.param([mx.array([1])], id="no row"),
    pytest.param([mx.array([[[1]]])], id="rows of rows"),
    pytest.param([mx.zeros((1, 0), mx.int32)], id="no token"),
    pytest.param([mx.array([[1]]), mx.array([[1]])], id="two arrays"),
    pytest.param([], id="none"),
]


@pytest.mark.parametrize("arrays", FALSE_TOKENS)
def test_what_is_no_token_of_the_model_is_refused(arrays: list[mx.array]) -> None:
    with pytest.raises(ProtocolError):
        tokens_in(arrays, VOCABULARY)


def test_the_last_token_of_the_vocabulary_is_one() -> None:
    assert tokens_in([mx.array([[0, VOCABULARY - 1]])], VOCABULARY).shape == (1, 2)


FALSE_WORK = [
    pytest.param("reverse", FrameType.ACTIVATION, [mx.zeros((1, 1, 96))], id="a hidden state to who embeds"),
    pytest.param("reverse", FrameType.STEP_TOKEN, [mx.array([[VOCABULARY]])], id="a token that is none"),
    pytest.param("reverse", FrameType.PROMPT_TOKENS, [mx.array([[-1]])], id="a prompt that is none"),
    pytest.param("private", FrameType.STEP_TOKEN, [mx.array([[1]])], id="a token to who has no embedding"),
    pytest.param("forward", FrameType.TOKEN, [mx.array([[1]])], id="a chosen token to who chooses"),
]


@pytest.mark.parametrize(("topology", "kind", "arrays"), FALSE_WORK)
@pytest.mark.promise("T4")
def test_work_that_is_not_for_this_stage_breaks_the_link(
    topology: Any, kind: FrameType, arrays: list[mx.array]
) -> None:
    whole = build("llama")
    layers = slices_of(whole, lambda: twin("llama", whole), (3,), topology)[1]
    stage = LoadedStage(layers, StageMeter(1))
    with ExitStack() as stack:
        linked = Linked(stack, 2, topology=topology)
        linked.link()
        follower, ring = Follower(stage, linked.plan, 1, BYTES), linked.rings[1]
        linked.head.send_work(WorkFrame(FrameType.COMPOSE, 1, payload=encode_orders([New(1)])), 1)
        linked.head.send_work(WorkFrame(kind, 2, 1, rows=1, payload=encode_arrays(arrays)), 1)
        for refused in (False, True):
            assert ring.wait((), WAIT_S)
            frame = ring.receive()
            if refused:
                with pytest.raises(ProtocolError):
                    follower.serve(ring, frame)
            else:
                follower.serve(ring, frame)
    assert stage.position(1) == 0
