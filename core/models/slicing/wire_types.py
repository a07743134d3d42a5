"""Bytes of hidden states sent between two stages, in the model's dtype or the plan's."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

import mlx.core as mx

from core.events import WireType

DTYPES: Final = {"float32": mx.float32, "bfloat16": mx.bfloat16}

Kind = tuple[tuple[int, ...], mx.Dtype]  # of an array: shape after [row, position], dtype


def bytes_per_token(wire: WireType | None, kinds: Sequence[Kind]) -> int:
    """Bytes per position of arrays of these `kinds`; `wire` applies to real numbers only."""
    return sum(_bytes(wire, tail, dtype) for tail, dtype in kinds)


def _bytes(wire: WireType | None, tail: tuple[int, ...], dtype: mx.Dtype) -> int:
    if wire is None or not mx.issubdtype(dtype, mx.floating):
        return prod(tail) * dtype.size
    if wire == "int8":
        return prod(tail) + mx.float32.size * prod(tail[:-1])
    return prod(tail) * DTYPES[wire].size
