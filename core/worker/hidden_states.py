"""Hidden states on the wire between two stages: unchanged, or packed as the plan says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import mlx.core as mx

from core.errors import ProtocolError
from core.events import WireType
from core.link.arrays import Arrived, decode_arrays, encode_arrays, packed_arrays
from core.link.frames import Buffer
from core.models.slicing.boundary import DTYPES
from core.models.slicing.slots import Slice

LARGEST: Final = 127  # largest 8-bit magnitude


class HiddenStates:
    """Packs and unpacks the hidden states of one stage. Arrays of other than real numbers travel unchanged."""

    def __init__(self, wire: WireType | None, layers: Slice) -> None:
        self._wire, self._layers = wire, layers

    def encode(self, arrays: Sequence[mx.array]) -> list[Buffer]:
        """The payload of a frame. Raises ProtocolError for more arrays than travel together."""
        return encode_arrays([part for array in arrays for part in _packed(array, self._wire)])

    def decode(self, payload: memoryview) -> Sequence[Arrived]:
        """The arrays in the model's own types. Raises ProtocolError if the sender packed them differently."""
        if self._wire is None:
            return packed_arrays(payload)
        return _unpacked(decode_arrays(payload), self._wire, [dtype for _, dtype in self._layers.incoming])


def _packed(array: mx.array, wire: WireType | None) -> list[mx.array]:
    if wire is None or not mx.issubdtype(array.dtype, mx.floating):
        return [array]
    if wire != "int8":
        return [array.astype(DTYPES[wire])]
    exact = array.astype(mx.float32)
    scale = mx.abs(exact).max(axis=-1, keepdims=True) / LARGEST
    return [mx.round(exact / mx.where(scale > 0, scale, 1)).astype(mx.int8), scale]


def _unpacked(arrays: Sequence[mx.array], wire: WireType, dtypes: Sequence[mx.Dtype]) -> list[mx.array]:
    rest = iter(arrays)
    try:
        unpacked = [_restored(rest, wire, dtype) for dtype in dtypes]
    except StopIteration:
        raise _refused(arrays, wire) from None
    if next(rest, None) is not None:
        raise _refused(arrays, wire)
    return unpacked


def _restored(arrays: Iterator[mx.array], wire: WireType, dtype: mx.Dtype) -> mx.array:
    array = next(arrays)
    if not mx.issubdtype(dtype, mx.floating):
        return array  # the stage itself checks its type
    if wire != "int8":
        if array.dtype != DTYPES[wire]:
            raise _refused([array], wire)
        return array.astype(dtype)
    scale = next(arrays)
    if (array.dtype, scale.dtype) != (mx.int8, mx.float32) or scale.shape != (*array.shape[:-1], 1):
        raise _refused([array, scale], wire)
    return (array * scale).astype(dtype)


def _refused(arrays: Sequence[mx.array], wire: WireType) -> ProtocolError:
    came = ", ".join(f"{array.dtype} {list(array.shape)}" for array in arrays)
    return ProtocolError(f"Hidden states travel as {wire} in this plan, and a frame carried {came or 'nothing'}.")
