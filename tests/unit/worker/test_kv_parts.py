"""Caches go from stage to stage in parts, each in its turn, and an unexpected part is refused."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.engine.ring_work import Copy, Merge, New, Restore
from core.errors import ProtocolError, SessionError
from core.models.slicing.probe import ModelProbe
from core.models.slicing.slots import Slice
from core.worker import kv_parts
from core.worker.kv_parts import Exchange, KvPart, Verb, decode_part, encode_part
from core.worker.stage import LoadedStage
from core.worker.telemetry import StageMeter
from tests.support.made import build, twin

PROMPT = [[5, 6, 7, 8, 9, 10, 11]]
PART_BYTES = 1000


@cache
def whole() -> Any:
    return build("llama sliding")


def stage() -> LoadedStage:
    """A stage with all of a model in one process."""
    model = twin("llama sliding", whole())
    probe = ModelProbe(whole())
    return LoadedStage(Slice(model, probe, 0, probe.layers, embed=True, output=True), StageMeter(0))


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_parts, "PART_BYTES", PART_BYTES)


@pytest.fixture
def giver() -> LoadedStage:
    giver = stage()
    giver.compose([New(1)])
    giver.whole(1, mx.array(PROMPT))
    return giver


@pytest.fixture
def taker() -> LoadedStage:
    taker = stage()
    taker.compose([Restore(9, len(PROMPT[0]))])
    return taker


def fetched(giver: Exchange, number: int) -> Iterator[KvPart]:
    """All parts of a cache, in the form that a waiting row takes."""
    at = total = 0
    while not at or at < total:
        held = giver.answer(1, wire(KvPart(Verb.FETCH, number, at)))
        assert (held.verb, held.cache, held.offset) == (Verb.HELD, number, at)
        assert len(held.data) <= PART_BYTES
        at, total = at + len(held.data), held.total
        yield held._replace(verb=Verb.FILL)


def wire(part: KvPart) -> KvPart:
    return decode_part(memoryview(b"".join(encode_part(part))))


def test_a_row_that_came_in_parts_goes_on_as_the_one_that_it_was(giver: LoadedStage, taker: LoadedStage) -> None:
    out, into = Exchange(giver), Exchange(taker)
    count = 0
    for number in giver.layers.caches.indices:
        for part in fetched(out, number):
            filled = into.answer(9, wire(part))
            assert filled == KvPart(Verb.FILLED, number, part.offset, part.total)
            count += 1
    assert count > 2 * len(giver.layers.caches.indices)
    for token in (3, 4, 5):
        expected = np.array(giver.whole(1, mx.array([[token]])))
        np.testing.assert_allclose(np.array(taker.whole(9, mx.array([[token]]))), expected, rtol=0, atol=1e-4)


def test_a_row_is_of_no_use_before_all_of_it_is_there(giver: LoadedStage, taker: LoadedStage) -> None:
    into = Exchange(taker)
    parts = [part for number in giver.layers.caches.indices for part in fetched(Exchange(giver), number)]
    for part in parts[:-1]:
        into.answer(9, part)
        for use in (lambda: taker.whole(9, mx.array([[3]])), lambda: taker.compose([Copy(8, 9)])):
            with pytest.raises(ProtocolError, match="are not complete yet"):
                use()
    into.answer(9, parts[-1])
    taker.compose([Copy(8, 9)])


def test_what_is_out_of_turn_is_refused(giver: LoadedStage, taker: LoadedStage) -> None:
    out, into = Exchange(giver), Exchange(taker)
    first, second, *_ = fetched(out, 0)
    with pytest.raises(ProtocolError, match="not the next one"):
        into.answer(9, second)
    into.answer(9, first)
    with pytest.raises(ProtocolError, match="not the next one"):
        into.answer(9, second._replace(offset=second.offset + 1, data=second.data[1:]))
    with pytest.raises(ProtocolError, match="does not wait for it"):
        into.answer(7, first)
    with pytest.raises(ProtocolError, match="not the next one"):
        out.answer(1, KvPart(Verb.FETCH, 0, PART_BYTES))
    with pytest.raises(SessionError, match="Layer cache 0 has 5 bytes, where this model's has"):
        into.answer(9, KvPart(Verb.FILL, 0, 0, 5, b"12345"))


def test_only_what_is_there_and_a_row_of_its_own_can_be_had(giver: LoadedStage) -> None:
    out = Exchange(giver)
    with pytest.raises(ProtocolError, match="Handle 2 holds no rows"):
        out.answer(2, KvPart(Verb.FETCH, 0))
    giver.compose([Merge(3, (1,))])
    with pytest.raises(ProtocolError, match="is a batch"):
        out.answer(3, KvPart(Verb.FETCH, 0))


def test_a_row_that_waits_for_nothing_or_for_too_much_is_refused(taker: LoadedStage) -> None:
    with pytest.raises(ProtocolError, match="no tokens"):
        taker.compose([Restore(1, 0)])


@given(st.binary(max_size=80))
def test_any_bytes_are_a_part_or_refused(data: bytes) -> None:
    try:
        part = decode_part(memoryview(data))
    except ProtocolError:
        return
    assert b"".join(encode_part(part)) == data
