"""What is cut out of a row, however it is cut, makes the same row again, and nothing else is taken for it."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.engine.ring_work import New, Restore
from core.errors import ProtocolError
from core.models.made.maker import random_model
from core.models.slicing.probe import ModelProbe
from core.models.slicing.slots import KV_GROUP, Slice
from core.worker.kv_spans import KvSpan, SpanVerb, decode_span, encode_span, is_span, serve_span
from core.worker.stage import LoadedStage
from core.worker.telemetry import StageMeter
from tests.support.atlas import config_of
from tests.support.made import build, twin

PROMPT = [[5 + (7 * n) % 60 for n in range(41)]]
KINDS = {"llama": None, "deepseek_v3": None, "qwen3": 8}


@cache
def stage(kind: str, _: int = 0) -> LoadedStage:
    """All of a model in one process."""
    bits = KINDS.get(kind)
    if bits:
        config = {**config_of(kind), "head_dim": KV_GROUP}
        probed, model = (random_model(config, 3, mx.float32) for _ in range(2))
    else:
        probed = build(kind)
        model = twin(kind, probed)
    probe = ModelProbe(probed)
    made = LoadedStage(Slice(model, probe, 0, probe.layers, embed=True, output=True), StageMeter(0), bits)
    made.compose([New(1)])
    made.whole(1, mx.array(PROMPT))
    return made


def cut(kind: str, start: int, stop: int) -> KvSpan:
    return serve_span(stage(kind), 1, KvSpan(SpanVerb.CUT, 0, start, stop, {}))


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(sorted(KINDS)), st.integers(1, 41), st.sets(st.integers(1, 40), max_size=4))
def test_a_row_is_the_sum_of_its_spans(kind: str, tokens: int, places: set[int]) -> None:
    holder = stage(kind)
    holder.compose([Restore(2, tokens)])
    cuts = sorted({0, tokens, *(place for place in places if place < tokens)})
    try:
        for start, stop in pairwise(cuts):
            came = decode_span(b"".join(encode_span(cut(kind, start, stop))))
            assert sorted(came.caches) == sorted(holder.layers.cache_indices)
            assert not serve_span(holder, 2, came._replace(verb=SpanVerb.PASTE)).caches
        whole = serve_span(holder, 2, KvSpan(SpanVerb.CUT, 0, 0, tokens, {}))
        assert whole.caches == cut(kind, 0, tokens).caches
    finally:
        holder._forget(2)


@pytest.mark.parametrize("kind", ["llama sliding", "qwen3_next", "llama4"])
def test_what_cannot_be_cut_is_left_out(kind: str) -> None:
    assert not cut(kind, 3, 9).caches


@pytest.mark.parametrize(("start", "stop"), [(0, 42), (41, 42), (7, 7), (9, 3)])
def test_tokens_that_are_not_there_are_left_out(start: int, stop: int) -> None:
    assert not cut("llama", start, stop).caches


@pytest.mark.parametrize(
    ("source", "start", "stop"),
    [
        pytest.param("deepseek_v3", 0, 9, id="another model's"),
        pytest.param("llama", 0, 8, id="fewer tokens"),
        pytest.param("llama", 0, 10, id="more tokens"),
    ],
)
def test_what_does_not_belong_there_is_not_taken(source: str, start: int, stop: int) -> None:
    holder = stage("llama")
    holder.compose([Restore(3, 20)])
    span = cut(source, start, stop)._replace(verb=SpanVerb.PASTE, start=0, stop=9)
    assert serve_span(holder, 3, span).caches == span.caches
    holder._forget(3)


@pytest.mark.parametrize(("start", "stop"), [(1, 9), (0, 21), (0, 0)])
def test_nobody_takes_what_he_does_not_wait_for(start: int, stop: int) -> None:
    holder = stage("llama")
    holder.compose([Restore(4, 20)])
    span = cut("llama", 0, 9)._replace(verb=SpanVerb.PASTE, start=start, stop=stop)
    with pytest.raises(ProtocolError):
        serve_span(holder, 4, span)
    holder._forget(4)


@given(st.binary(max_size=80))
def test_other_bytes_are_refused(payload: bytes) -> None:
    if is_span(payload):
        try:
            span = decode_span(payload)
        except ProtocolError:
            return
        assert b"".join(encode_span(span)) == payload
