"""Spans of a row, however they are cut, make the same row again, and nothing else is accepted for one."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.engine.ring_work import Drop, New, Restore
from core.errors import ProtocolError
from core.models.made.maker import random_model
from core.models.slicing.caches import KV_GROUP
from core.models.slicing.probe import ModelProbe
from core.models.slicing.slots import Slice
from core.worker.kv_spans import STATE, CachePart, KvSpan, SpanVerb, decode_span, encode_span, is_span, serve_span
from core.worker.stage import LoadedStage
from core.worker.telemetry import StageMeter
from tests.support.atlas import config_of
from tests.support.made import build, twin
from tests.support.search import SEARCH

PROMPT = [[5 + (7 * n) % 60 for n in range(41)]]
KINDS = {"llama": None, "llama sliding": None, "llama4": None, "deepseek_v3": None, "qwen3": 8}


@cache
def stage(kind: str, _: int = 0) -> LoadedStage:
    """A stage with all of a model in one process."""
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


@pytest.mark.slow
@settings(max_examples=15 * SEARCH, deadline=None)
@given(st.sampled_from(sorted(KINDS)), st.sets(st.integers(1, 41), min_size=1, max_size=6), st.data())
def test_a_row_is_the_sum_of_its_spans_or_it_is_known_that_it_is_not(
    kind: str, read: set[int], data: st.DataObject
) -> None:
    """Spans are cut after some of the chunks that are read; windows may have lost their first tokens by then."""
    holder, tokens = stage(kind), max(read)
    told = {tokens, *(place for place in read if data.draw(st.booleans()))}
    holder.compose([New(3), Restore(2, tokens)])
    spans, at = [], 0
    for start, stop in pairwise(sorted({0, *read})):
        holder.whole(3, mx.array([PROMPT[0][start:stop]]))
        if stop in told:
            span = serve_span(holder, 3, KvSpan(SpanVerb.CUT, 0, at, stop, {}))
            assert sorted(span.caches) == sorted(holder.layers.caches.indices)
            spans.append(decode_span(b"".join(encode_span(span))))
            at = stop
    try:
        left = [serve_span(holder, 2, span._replace(verb=SpanVerb.PASTE)).caches for span in spans]
        if any(left):
            assert any(part.first > span.start for span in spans for part in span.caches.values())
            return
        for index in holder.layers.caches.indices:
            assert holder.pack(2, index) == holder.pack(3, index)
    except ProtocolError:
        assert any(part.first > span.start for span in spans for part in span.caches.values())
    finally:
        holder.compose([Drop(2), Drop(3)])


@pytest.mark.parametrize("kind", ["qwen3_next", "deepseek_v41"])
def test_states_say_how_large_they_are_and_come_where_the_row_is(kind: str) -> None:
    sizes = {n: part.first for n, part in cut(kind, 3, 9).caches.items() if part.needs == STATE}
    wanted = dict.fromkeys(sizes, CachePart(0, STATE, b""))
    asked = KvSpan(SpanVerb.CUT, 0, 41, 41, wanted)
    assert sizes
    assert {n: len(part.data) for n, part in serve_span(stage(kind), 1, asked).caches.items()} == sizes
    assert serve_span(stage(kind), 1, asked._replace(start=40, stop=40)).caches == wanted


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
