"""Spans of a row are cut out as it grows, and another worker continues from them as if it had read all of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import mlx.core as mx
import pytest
from msgspec.structs import replace

from core.engine.requests import Request
from core.engine.ring_work import Work
from core.events import Batch, Plan, Stage
from core.models.made.maker import random_model
from core.models.slicing.caches import KV_GROUP
from core.models.slicing.probe import ModelProbe
from core.models.slicing.slots import Slice
from core.node.answers.kv_mirror import Mirror
from core.plan import mirror as plan_mirror
from core.worker import mirroring
from core.worker.head import Head
from core.worker.messages import (
    Mirrored,
    MirrorSpans,
    Prefilled,
    Report,
    Restored,
    Token,
    Unmirrored,
    WantSpans,
)
from core.worker.pipeline import Pipeline
from core.worker.stage import LoadedStage
from core.worker.telemetry import StageMeter
from tests.support.atlas import config_of
from tests.support.grammars import BYTES
from tests.support.made import build, twin

pytestmark = pytest.mark.slow

PROMPT = [5 + (7 * n) % 60 for n in range(60)]
REQUEST = "ab" * 16
TOKENS = 14
BITS = "qwen3 in 8 bits"


@cache
def whole(variant: str) -> Any:
    if variant == BITS:
        return random_model({**config_of("qwen3"), "head_dim": KV_GROUP}, 3, mx.float32)
    return build(variant)


def another(variant: str) -> Any:
    """Another instance with the same weights."""
    if variant != BITS:
        return twin(variant, whole(variant))
    return random_model({**config_of("qwen3"), "head_dim": KV_GROUP}, 3, mx.float32)


class MirrorRing:
    """A head that owns the whole model, and a node that keeps its mirrored spans: `kept` by request."""

    def __init__(self, variant: str = "llama", rows: int = 2, mirror: Mirror | None = None) -> None:
        kv_bits = 8 if variant == BITS else None
        alone = Stage(device_id="a", peer="mac", start=0, stop=8, weight_bytes=0, kv_bytes=4000, budget_bytes=0)
        plan = Plan(
            plan_gen=1,
            model="tiny",
            fingerprint="f",
            topology="single",
            layers=8,
            context=400,
            chunk=16,
            rows=rows,
            kv_bits=kv_bits,
            stages=(alone,),
            output="a",
            batched=not kv_bits,
            mirror_bytes=1,
        )
        probe = ModelProbe(whole(variant))
        layers = Slice(another(variant), probe, 0, probe.layers, embed=True, output=True)
        self.reports: list[Report] = []
        self.mirror = mirror or Mirror()
        self.mirror.limit = 1 << 30
        self.requests: dict[str, Request] = {}
        self.head = Head(
            plan, Pipeline(LoadedStage(layers, StageMeter(0), kv_bits), plan, 5.0), self.reports.append, BYTES
        )

    def run(self, *requests: Request, until: int | None = None) -> None:
        """Ask, and take turns until nothing is left, or `until` tokens were written."""
        inbox: Any = None
        for request in requests:
            mirrored = self.mirror.begin(request.request_id, request.prefix)
            self.requests[request.request_id] = replace(request, mirrored=mirrored)
            self.head.submit(self.requests[request.request_id])
        at = 0
        while self.head.is_busy or at < len(self.reports):
            while at < len(self.reports):
                self._answer(self.reports[at])
                at += 1
            if until is not None and len(self.said(Token)) >= until:
                return
            if self.head.is_busy:
                self.head.turn(inbox)

    def said(self, kind: type) -> list[Any]:
        return [report for report in self.reports if isinstance(report, kind)]

    def tokens(self, request_id: str = REQUEST) -> list[int]:
        return [report.token for report in self.said(Token) if report.request_id == request_id]

    def _answer(self, report: Report) -> None:
        if isinstance(report, Mirrored):
            known = [*self.requests[report.request_id].prefix, *self.tokens(report.request_id)]
            assert self.mirror.keep(report.request_id, report.span, known)
        elif isinstance(report, WantSpans):
            spans = self.mirror.spans(report.request_id, report.behind)[:1]
            self.head.mirroring.take(MirrorSpans(request_id=report.request_id, behind=report.behind, spans=spans))


def a_request(tokens: Sequence[int] = PROMPT, request_id: str = REQUEST, count: int = TOKENS) -> Request:
    return Request(request_id=request_id, tokens=list(tokens), max_tokens=count)


def gone_on_with(lost: MirrorRing, variant: str, *requests: Request) -> MirrorRing:
    """Another worker, which continues after `lost`."""
    ring = MirrorRing(variant, mirror=lost.mirror)
    ring.run(*(replace(request, written=lost.tokens(request.request_id)) for request in requests))
    return ring


@cache
def undisturbed(variant: str, prompt: tuple[int, ...] = tuple(PROMPT), count: int = TOKENS) -> list[int]:
    """The whole answer of a worker that is not lost."""
    ring = MirrorRing(variant)
    ring.run(a_request(prompt, count=count))
    return ring.tokens()


@pytest.mark.parametrize(
    ("variant", "until"),
    [
        pytest.param("llama", 1, marks=pytest.mark.nightly),
        ("llama", 9),
        ("llama sliding", 9),
        (BITS, 1),
        pytest.param("mamba2", 9, marks=pytest.mark.nightly),
        pytest.param("recurrent_gemma", 9, marks=pytest.mark.nightly),
        ("falcon_h1", 9),
    ],
)
def test_an_answer_goes_on_with_what_was_mirrored(variant: str, until: int) -> None:
    lost = MirrorRing(variant)
    lost.run(a_request(), until=until)
    ring = gone_on_with(lost, variant, a_request())
    (restored,) = ring.said(Restored)
    assert len(PROMPT) + until - restored.tokens <= plan_mirror.EVERY + 1
    assert [*lost.tokens(), *ring.tokens()] == undisturbed(variant)
    assert ring.said(Prefilled)[0].done == restored.tokens


@pytest.mark.parametrize("variant", ["llama", pytest.param("llama sliding", marks=pytest.mark.nightly), "qwen3_next"])
def test_rows_of_a_batch_are_mirrored_too(variant: str) -> None:
    other = "cd" * 16
    lost = MirrorRing(variant)
    requests = (a_request(count=40), a_request(PROMPT[3:], other, 40))
    lost.run(*requests, until=70)
    ring = gone_on_with(lost, variant, *requests)
    assert len(ring.said(Restored)) == 2
    for request in requests:
        name = request.request_id
        assert [*lost.tokens(name), *ring.tokens(name)] == undisturbed(variant, tuple(request.tokens), 40)
        assert ring.requests[name].mirrored > len(request.tokens)


def test_states_travel_in_parts_that_belong_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirroring, "SPAN_BYTES", 20_000)
    lost = MirrorRing("qwen3_next")
    lost.run(a_request(), until=9)
    ring = gone_on_with(lost, "qwen3_next", a_request())
    assert len(ring.said(WantSpans)) > 6
    assert ring.said(Restored)
    assert [*lost.tokens(), *ring.tokens()] == undisturbed("qwen3_next")


def test_a_state_that_is_too_large_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirroring, "MOST_STATE", 100)
    ring = MirrorRing("qwen3_next")
    ring.run(a_request())
    assert len(ring.tokens()) == TOKENS
    assert not ring.said(Mirrored)
    assert len(ring.said(Unmirrored)) == 1


def test_a_row_is_told_to_be_read_before_its_first_chunk_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    ring, told, put = MirrorRing(), list[str](), Head._put

    def put_when_told(head: Head, work: Work | None) -> None:
        told.append(_states(ring))
        put(head, work)

    monkeypatch.setattr(Head, "_put", put_when_told)
    ring.run(a_request())
    assert told[0] == "reading"


def _states(ring: MirrorRing) -> str:
    return " ".join(row.state for report in ring.said(Batch)[-1:] for row in report.rows)
