import contextlib
import gc
import struct

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import ProtocolError
from core.link.arrays import decode_arrays, encode_arrays
from tests.support.search import SEARCH

TYPES = [mx.float32, mx.float16, mx.bfloat16, mx.int32, mx.uint32, mx.int8]


def travel(arrays: list[mx.array]) -> list[mx.array]:
    return decode_arrays(memoryview(bytearray(b"".join(encode_arrays(arrays)))))


def same(a: mx.array, b: mx.array) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and bool(mx.array_equal(a.view(mx.uint8), b.view(mx.uint8)))


@pytest.mark.slow
@settings(max_examples=60 * SEARCH, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(TYPES), st.lists(st.integers(0, 4), min_size=1, max_size=6)), max_size=8))
def test_arrays_travel_bit_for_bit(kinds: list[tuple[mx.Dtype, list[int]]]) -> None:
    arrays = [(mx.random.normal(shape) * 1000).astype(dtype) for dtype, shape in kinds]
    back = travel(arrays)
    assert len(back) == len(arrays)
    assert all(same(a, b) for a, b in zip(arrays, back, strict=True))


def test_a_number_alone_travels() -> None:
    (back,) = travel([mx.array(2.5)])
    assert (back.shape, back.item()) == ((), 2.5)


def test_what_is_not_contiguous_travels() -> None:
    whole = mx.arange(96, dtype=mx.float32).reshape(4, 8, 3)
    for part in (whole[:, -1:], whole.transpose(2, 0, 1), whole[::2].astype(mx.bfloat16)[:, 1::3]):
        assert bool(mx.array_equal(travel([part])[0], part))


def test_the_descriptor_is_that_of_the_specification_and_nothing_is_copied() -> None:
    array = mx.ones((1, 2, 3), dtype=mx.bfloat16)
    head, raw = encode_arrays([array])
    assert head == struct.pack("<BBBIII", 1, 3, 3, 1, 2, 3)
    assert (len(raw), bytes(raw[:2])) == (12, b"\x80\x3f")
    assert encode_arrays([]) == [b"\0"]


@pytest.mark.parametrize("dtype", TYPES)
def test_bytes_are_not_copied_and_hold_their_array_alive(dtype: mx.Dtype) -> None:
    array = mx.ones((4, 4), dtype=dtype)
    before, raw = bytes(encode_arrays([array])[1]), encode_arrays([array])[1]
    assert isinstance(raw, memoryview)
    raw[0] ^= 0x40
    assert bytes(encode_arrays([array])[1]) == bytes(raw) != before
    del array
    gc.collect()
    assert bytes(raw[1:]) == before[1:]


def test_an_array_does_not_alias_the_buffer_it_came_from() -> None:
    buffer = bytearray(b"".join(encode_arrays([mx.arange(8, dtype=mx.int32)])))
    (back,) = decode_arrays(memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    assert back.tolist() == list(range(8))


def test_other_types_and_too_many_of_anything_are_refused() -> None:
    for arrays in ([mx.zeros(1)] * 9, [mx.zeros((1,) * 7)], [mx.zeros(1, mx.int64)], [mx.zeros(1, mx.complex64)]):
        with pytest.raises(ProtocolError):
            encode_arrays(arrays)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x01",
        b"\x09" + bytes(100),
        b"\x01\x01\x07" + bytes(100),
        b"\x01\x06\x01" + bytes(8),
        b"\x01\x00\x01" + bytes(8),
        struct.pack("<BBBI", 1, 1, 1, 2) + bytes(7),
        struct.pack("<BBBI", 1, 1, 1, 2) + bytes(9),
        struct.pack("<BBB6I", 1, 1, 6, *[2**32 - 1] * 6),
        struct.pack("<BBBII", 1, 1, 2, 2**31, 2**31),
    ],
)
def test_a_body_that_does_not_add_up_is_refused_before_anything_is_allocated(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_arrays(memoryview(body))


@settings(deadline=None)
@given(st.binary(max_size=80))
def test_decode_raises_only_protocol_errors(body: bytes) -> None:
    for candidate in (body, b"\x01\x01\x01" + body, b"\x02\x03\x00" + body):
        with contextlib.suppress(ProtocolError):
            decode_arrays(memoryview(candidate))
