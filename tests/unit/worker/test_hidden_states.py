"""Hidden states between stages: the values of each dtype on arrival, their error, and refusals."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import ProtocolError
from core.events import WireType
from core.link.arrays import encode_arrays, unpacked
from core.models.slicing.boundary import bytes_per_token
from core.worker.hidden_states import HiddenStates
from tests.support.search import SEARCH

TINY = float(np.finfo(np.float32).tiny)


def between(wire: WireType | None, *arrays: mx.array) -> HiddenStates:
    """Stages that pass on arrays like these."""
    layers: Any = SimpleNamespace(incoming=[(array.shape[2:], array.dtype) for array in arrays])
    return HiddenStates(wire, layers)


def body(parts: Any) -> memoryview:
    return memoryview(bytearray(b"".join(parts)))


def travelled(wire: WireType | None, *arrays: mx.array) -> list[mx.array]:
    hidden = between(wire, *arrays)
    return list(map(unpacked, hidden.decode(body(hidden.encode(arrays)))))


HIDDEN = mx.random.normal((2, 3, 64), key=mx.random.key(5))
SIDE = mx.arange(12, dtype=mx.int32).reshape(2, 3, 2)


@pytest.mark.parametrize(
    ("wire", "dtype", "is_exact"),
    [
        pytest.param(None, mx.float32, True, id="as it is"),
        pytest.param("float32", mx.float32, True, id="float32"),
        pytest.param("float32", mx.bfloat16, True, id="bfloat16-as-float32"),
        pytest.param("float32", mx.float16, True, id="float16-as-float32"),
        pytest.param("bfloat16", mx.bfloat16, True, id="bfloat16"),
        pytest.param("bfloat16", mx.float32, False, id="float32-as-bfloat16"),
        pytest.param("bfloat16", mx.float16, False, id="float16-as-bfloat16"),
        pytest.param("int8", mx.float32, False, id="float32-as-int8"),
        pytest.param("int8", mx.bfloat16, False, id="bfloat16-as-int8"),
    ],
)
def test_arrays_come_back_in_the_models_own_type(wire: WireType | None, dtype: mx.Dtype, is_exact: bool) -> None:
    sent = HIDDEN.astype(dtype)
    came, side = travelled(wire, sent, SIDE)
    assert (came.dtype, came.shape) == (sent.dtype, sent.shape)
    assert bool(mx.array_equal(came, sent)) is is_exact
    assert mx.allclose(came.astype(mx.float32), sent.astype(mx.float32), atol=0.03)
    assert side.dtype == mx.int32
    assert mx.array_equal(side, SIDE)


FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**120), max_value=2.0**120)


@settings(max_examples=100 * SEARCH, deadline=None)
@given(st.lists(st.lists(FLOATS, min_size=3, max_size=3), min_size=1, max_size=5))
def test_in_8_bits_no_number_is_off_by_more_than_half_a_step_of_its_row(rows: list[list[float]]) -> None:
    sent = mx.array([rows])
    (came,) = travelled("int8", sent)
    exact, found = np.array(sent, dtype=np.float64)[0], np.array(came, dtype=np.float64)[0]
    largest = np.abs(exact).max(axis=-1, keepdims=True)
    rounding = 2.0**-22 * largest + 128 * TINY
    assert (np.abs(exact - found) <= largest / 254 + rounding).all()


@pytest.mark.parametrize(
    ("wire", "weight"), [(None, 128 + 8), ("float32", 256 + 8), ("bfloat16", 128 + 8), ("int8", 64 + 4 + 8)]
)
def test_a_token_weighs_what_travels_of_it(wire: WireType | None, weight: int) -> None:
    sent = [HIDDEN.astype(mx.bfloat16), SIDE]
    assert bytes_per_token(wire, [(array.shape[2:], array.dtype) for array in sent]) == weight
    _, *parts = between(wire, *sent).encode(sent)
    assert sum(map(len, parts)) == weight * 6


@pytest.mark.parametrize("wire", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize(
    "came",
    [
        pytest.param([], id="nothing"),
        pytest.param([HIDDEN.astype(mx.float16)], id="another type"),
        pytest.param([HIDDEN.astype(mx.int8)], id="no scale"),
        pytest.param([HIDDEN.astype(mx.int8), HIDDEN], id="a scale for each number"),
        pytest.param([HIDDEN.astype(mx.int8), HIDDEN[..., :1], HIDDEN], id="more"),
        pytest.param([mx.array(3, dtype=mx.int8), mx.array(1.0)], id="numbers alone"),
    ],
)
@pytest.mark.promise("P6")
def test_what_was_packed_in_another_way_is_refused(wire: WireType, came: list[mx.array]) -> None:
    with pytest.raises(ProtocolError, match=f"travel as {wire} in this plan"):
        between(wire, HIDDEN).decode(body(encode_arrays(came)))
