"""What a row holds is cut out as it grows, and another worker goes on with it as if it had read all of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import mlx.core as mx
import pytest

from core.engine.requests import Request
from core.events import Plan, Stage
from core.models.made.maker import random_model
from core.models.slicing.probe import ModelProbe
from core.models.slicing.slots import KV_GROUP, Slice
from core.worker import mirroring
from core.worker.head import Head
from core.worker.messages import (
    Mirrored,
    MirrorSpan,
    MirrorSpans,
    Prefilled,
    Report,
    Restored,
    Token,
    WantSpans,
)
from core.worker.pipeline import Pipeline
from core.worker.stage import LoadedStage
from core.worker.telemetry import StageMeter
from tests.support.atlas import config_of
from tests.support.made import build, twin

PROMPT = [5 + (7 * n) % 60 for n in range(60)]
REQUEST = "ab" * 16
TOKENS = 40
BITS = "qwen3 in 8 bits"


@cache
def whole(variant: str) -> Any:
    if variant == BITS:
        return random_model({**config_of("qwen3"), "head_dim": KV_GROUP}, 3, mx.float32)
    return build(variant)


def another(variant: str) -> Any:
    """An instance with the same weights."""
    if variant != BITS:
        return twin(variant, whole(variant))
    return random_model({**config_of("qwen3"), "head_dim": KV_GROUP}, 3, mx.float32)


class Desk:
    """A head that owns the whole model, and a node that keeps what it mirrors: `spans` by request."""

    def __init__(self, variant: str = "llama", rows: int = 2) -> None:
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
        self.spans: dict[str, list[MirrorSpan]] = {}
        self.head = Head(plan, Pipeline(LoadedStage(layers, StageMeter(0), kv_bits), plan, 5.0), self.reports.append)

    def run(self, *requests: Request, until: int | None = None) -> None:
        """Ask, and let it turn until nothing is left to do, or `until` tokens were written."""
        inbox: Any = None
        for request in requests:
            self.head.submit(request)
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
            kept = self.spans.setdefault(report.request_id, [])
            assert report.span.start == (kept[-1].stop if kept else 0)
            kept.append(report.span)
        elif isinstance(report, WantSpans):
            found = [span for span in self.spans[report.request_id] if span.start >= report.start]
            self.head.mirroring.take(MirrorSpans(request_id=report.request_id, spans=tuple(found[:1])))


def a_request(tokens: Sequence[int] = PROMPT, request_id: str = REQUEST, **more: Any) -> Request:
    return Request(request_id=request_id, tokens=list(tokens), max_tokens=TOKENS, **more)


def gone_on_with(lost: Desk, variant: str) -> Desk:
    """Another worker, which goes on where `lost` was."""
    desk = Desk(variant)
    desk.spans = {REQUEST: list(lost.spans[REQUEST])}
    desk.run(a_request(written=lost.tokens(), mirrored=lost.spans[REQUEST][-1].stop))
    return desk


@pytest.mark.parametrize(("variant", "until"), [("llama", 1), ("llama", 35), ("llama sliding", 35), (BITS, 1)])
def test_an_answer_goes_on_with_what_was_mirrored(variant: str, until: int) -> None:
    undisturbed, lost = Desk(variant), Desk(variant)
    undisturbed.run(a_request())
    lost.run(a_request(), until=until)
    desk = gone_on_with(lost, variant)
    (restored,) = desk.said(Restored)
    assert len(PROMPT) + until - restored.tokens <= mirroring.EVERY + 1
    assert [*lost.tokens(), *desk.tokens()] == undisturbed.tokens()
    assert desk.said(Prefilled)[0].done == restored.tokens


@pytest.mark.parametrize("variant", ["llama", "llama sliding"])
def test_rows_of_a_batch_are_mirrored_too(variant: str) -> None:
    other = "cd" * 16
    undisturbed, lost = Desk(variant), Desk(variant)
    requests = (a_request(), a_request(PROMPT[3:], other))
    undisturbed.run(*requests)
    lost.run(*requests, until=70)
    desk = Desk(variant)
    desk.spans = {name: list(spans) for name, spans in lost.spans.items()}
    desk.run(
        *(
            Request(
                request_id=name,
                tokens=tokens,
                max_tokens=TOKENS,
                written=lost.tokens(name),
                mirrored=lost.spans[name][-1].stop,
            )
            for name, tokens in ((REQUEST, PROMPT), (other, PROMPT[3:]))
        )
    )
    assert len(desk.said(Restored)) == 2
    for name in (REQUEST, other):
        assert [*lost.tokens(name), *desk.tokens(name)] == undisturbed.tokens(name)
        assert lost.spans[name][-1].stop > len(PROMPT)


@pytest.mark.parametrize("variant", ["qwen3_next"])
def test_what_cannot_be_cut_is_read_again(variant: str) -> None:
    desk = Desk(variant)
    desk.run(a_request())
    assert len(desk.tokens()) == TOKENS
    assert not desk.spans
