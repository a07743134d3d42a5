"""A head with the output goes ahead: the returned states, the choice and the next states are one graph."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from time import monotonic
from types import SimpleNamespace
from typing import cast
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from core.engine.requests import Request
from core.engine.sampling import NextTokens
from core.models.slicing.probe import ModelProbe
from core.models.slicing.slots import Slice
from core.sampling_options import Sampling
from core.worker.follower import Follower
from core.worker.head import Head
from core.worker.messages import AnswerDone, Report, Token
from core.worker.pipe import Inbox
from core.worker.pipeline import Pipeline
from core.worker.stage import LoadedStage
from tests.support.grammars import BYTES
from tests.support.linked import WAIT_S, Linked
from tests.support.made import build, twin
from tests.support.worker_ring import a_request

pytestmark = pytest.mark.slow

TOKENS = 12
SAMPLINGS = {
    "greedy": Sampling(),
    "drawn": Sampling(temperature=1.0, seed=5),
    "all": Sampling(temperature=0.8, top_k=20, repetition_penalty=1.3, logprobs=2, seed=6),
}


class Asking:
    """A head and the next stage, which serves when the head has nothing else to do."""

    def __init__(self, linked: Linked) -> None:
        whole = build("llama")
        probe = ModelProbe(whole)
        cut = probe.layers // 2
        first = Slice(twin("llama", whole), probe, 0, cut, embed=True, output=True)
        last = Slice(twin("llama", whole), probe, cut, probe.layers, embed=False, output=False)
        self.stage = LoadedStage(first, linked.meters[0])
        self._ring = linked.rings[1]
        self._follower = Follower(LoadedStage(last, linked.meters[1]), linked.plan, 1, BYTES)
        pipeline = Pipeline(self.stage, linked.plan, WAIT_S)
        pipeline._ring = linked.head
        self._said: list[Report] = []
        self._head = Head(linked.plan, pipeline, self._said.append, BYTES, draft=0)

    def answered(self, *requests: Request) -> list[list[Token]]:
        """The reports of each request, when all are done."""
        for request in requests:
            self._head.submit(request)
        until = monotonic() + WAIT_S
        reads, writes = os.pipe()
        os.write(writes, b"!")
        inbox = cast(Inbox, SimpleNamespace(fileno=lambda: reads))
        while self._head.is_busy:
            assert monotonic() < until
            for _ in range(3):
                self._head.turn(inbox)
            if self._ring.wait((), 0.0):
                self._follower.serve(self._ring, self._ring.receive())
        os.close(reads)
        os.close(writes)
        names = [request.request_id for request in requests]
        told = [each for each in self._said if isinstance(each, Token)]
        return [[replace(each, request_id="") for each in told if each.request_id == name] for name in names]


@pytest.fixture
def asking() -> Iterator[Asking]:
    with ExitStack() as stack:
        linked = Linked(stack, 2)
        linked.link()
        yield Asking(linked)


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("drawn", 1),
        ("greedy", 2),
        ("all", 2),
        *(pytest.param(*each, marks=pytest.mark.nightly) for each in (("greedy", 1), ("all", 1), ("drawn", 2))),
    ],
)
def test_what_is_foreseen_is_what_would_have_been_chosen(asking: Asking, name: str, rows: int) -> None:
    """Only the first and the last step are computed apart: the step after them may not go before a token is known."""

    def asked() -> list[Request]:
        return [a_request((7, 11, 13 + n), max_tokens=TOKENS, sampling=SAMPLINGS[name]) for n in range(rows)]

    with patch.object(asking.stage, "prepare", lambda _: None):
        expected = asking.answered(*asked())
    assert len({each.token for each in expected[0]}) > TOKENS / 2
    with patch.object(NextTokens, "begin", autospec=True, side_effect=NextTokens.begin) as begun:
        assert asking.answered(*asked()) == expected
    assert begun.call_count <= 4 * rows


@pytest.mark.parametrize("sampling", [pytest.param(each, id=name) for name, each in SAMPLINGS.items()])
def test_an_answer_whose_row_others_needed_goes_on_as_it_would_have(asking: Asking, sampling: Sampling) -> None:
    def asked() -> list[Request]:
        return [a_request((7, 11, 13 + n), max_tokens=TOKENS, sampling=sampling) for n in range(2)]

    expected = asking.answered(*asked())
    scheduler = asking._head._scheduler
    scheduler._prefixes._context, scheduler._queue._growth, scheduler._table._growth = 2 * TOKENS - 10, 1, 1
    with patch.object(Head, "_begin_again", autospec=True, side_effect=Head._begin_again) as displaced:
        assert asking.answered(*asked()) == expected
    assert displaced.call_count
    ends = [each for each in asking._said if isinstance(each, AnswerDone)]
    assert [(each.tokens, each.problem) for each in ends] == [(TOKENS, None)] * 4


def test_a_displaced_answer_that_is_too_long_to_send_to_the_mac_that_samples_ends_with_words(asking: Asking) -> None:
    head, asked = asking._head, a_request((7, 11, 13), max_tokens=TOKENS)
    head.submit(asked)
    too_long = patch("core.worker.remote_sampling.ADMISSION_BYTES", 1)
    with too_long, patch.object(head.pipeline, "chooses", new=False), patch.object(head.pipeline, "send_word"):
        head._begin_again(replace(asked, written=[5]))
    (done,) = [each for each in asking._said if isinstance(each, AnswerDone)]
    assert done.problem
    assert "too long to send" in done.problem.what
    assert head._scheduler.idle
