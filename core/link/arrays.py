"""Encode and decode arrays: count u8 | count x {dtype u8, ndim u8, ndim x u32 dims} | raw bytes of each array."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import mlx.core as mx

from core.errors import ProtocolError
from core.link.frames import Buffer, DType

MAX_ARRAYS: Final = 8
MAX_DIMS: Final = 6
MAX_DIM: Final = 2**31 - 1  # of mlx

_CODES: Final = {
    mx.float32: DType.FLOAT32,
    mx.float16: DType.FLOAT16,
    mx.bfloat16: DType.BFLOAT16,
    mx.int32: DType.INT32,
    mx.uint32: DType.UINT32,
    mx.int8: DType.INT8,
}
_DTYPES: Final = {int(code): dtype for dtype, code in _CODES.items()}


class PackedArray(NamedTuple):
    """An array inside a received frame, not copied to MLX yet; `data` is a view of the frame's body."""

    dtype: mx.Dtype
    shape: tuple[int, ...]
    data: memoryview

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return len(self.data)

    def unpack(self) -> mx.array:
        if not self.data:
            return mx.zeros(self.shape, self.dtype)
        raw = mx.array(self.data)  # type: ignore[arg-type]  # uint8, a copy
        return raw.view(self.dtype).reshape(self.shape)


Arrived = mx.array | PackedArray  # what MLX has computed, or what came from another stage


def unpacked(arrived: Arrived) -> mx.array:
    return arrived.unpack() if isinstance(arrived, PackedArray) else arrived


def encode_arrays(arrays: Sequence[mx.array]) -> list[Buffer]:
    """Evaluate arrays; returns the descriptor and views that keep their bytes alive. Raises ProtocolError."""
    if len(arrays) > MAX_ARRAYS:
        raise ProtocolError(f"{len(arrays)} arrays are more than the {MAX_ARRAYS} that a frame carries.")
    descriptor = bytearray([len(arrays)])
    for array in arrays:
        code = _CODES.get(array.dtype)
        if code is None or array.ndim > MAX_DIMS:
            raise ProtocolError(f"An array of {array.dtype} with {array.ndim} dimensions does not travel.")
        descriptor += struct.pack(f"<BB{array.ndim}I", code, array.ndim, *array.shape)
    mx.eval(arrays)
    return [bytes(descriptor), *(_raw(array) for array in arrays if array.size)]


def _raw(array: mx.array) -> memoryview:
    view = memoryview(array)  # type: ignore[arg-type]  # the stubs leave out its buffer protocol
    if not view.c_contiguous:
        view = memoryview(mx.contiguous(array))  # type: ignore[arg-type]
    # A bfloat16 view cannot be cast, and viewing the array as uint16 first would cost an evaluation.
    return memoryview((ctypes.c_uint8 * view.nbytes).from_buffer(view)).cast("B")


def overwrite(target: mx.array, source: Arrived) -> None:
    """Copy the bytes of `source` into the evaluated `target` of the same size: cheaper than another MLX array."""
    memory = memoryview(target)  # type: ignore[arg-type]
    assert memory.c_contiguous
    _raw(target)[:] = source.data if isinstance(source, PackedArray) else _raw(source)


def clear(target: mx.array) -> None:
    """Zero the evaluated `target`. On a GPU with its own memory this moves it to the host early, for `overwrite`."""
    memory = _raw(target)
    memory[:] = bytes(len(memory))


def decode_arrays(body: memoryview) -> list[mx.array]:
    return [packed.unpack() for packed in packed_arrays(body)]


def packed_arrays(body: memoryview) -> list[PackedArray]:
    """The arrays of a frame's body without a copy. Raises ProtocolError if shapes and length disagree."""
    try:
        shapes, at = _descriptor(body)
    except (struct.error, IndexError) as error:
        raise ProtocolError("The description of the arrays in a frame ends too soon.") from error
    total = at + sum(dtype.size * math.prod(shape) for dtype, shape in shapes)
    if total != len(body):
        raise ProtocolError(f"The arrays of a frame need {total} bytes; it has {len(body)}.")
    arrays = []
    for dtype, shape in shapes:
        length = dtype.size * math.prod(shape)
        arrays.append(PackedArray(dtype, shape, body[at : at + length]))
        at += length
    return arrays


def _descriptor(body: memoryview) -> tuple[list[tuple[mx.Dtype, tuple[int, ...]]], int]:
    """Dtype and shape of each array, and the offset of the data."""
    count, at = body[0], 1
    if count > MAX_ARRAYS:
        raise ProtocolError(f"A frame claims {count} arrays; {MAX_ARRAYS} are allowed.")
    shapes = []
    for _ in range(count):
        code, ndim = body[at], body[at + 1]
        dtype = _DTYPES.get(code)
        if dtype is None or ndim > MAX_DIMS:
            raise ProtocolError(f"A frame claims an array of type {code} with {ndim} dimensions.")
        shape = struct.unpack_from(f"<{ndim}I", body, at + 2)
        if max(shape, default=0) > MAX_DIM:
            raise ProtocolError(f"A frame claims an array of shape {shape}.")
        shapes.append((dtype, shape))
        at += 2 + 4 * ndim
    return shapes, at
