"""Boundary of a cut: the arrays of a layer's return value that are sent, and how the next stage restores the value.

Most families return one array. Some return a tuple, and the next layer reads only a part of it. Some pass a value from
before the first layer to every layer, with the hidden state (a side input). Side inputs are sent too, so a later stage
needs neither token ids nor the embedding. The probe finds all of this; both sides of a cut get the same result from
the same code and config.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from itertools import count
from math import prod
from typing import Any, Final, NamedTuple

import mlx.core as mx
import mlx.nn as nn

from core.errors import StageFailed
from core.events import WireType

# primes that are unusual counts of heads or streams, so that lengths identify the axes of a probe's arrays
ROWS: Final = 13
POSITIONS: Final = 11

DTYPES: Final = {"float32": mx.float32, "bfloat16": mx.bfloat16}

Kind = tuple[tuple[int, ...], mx.Dtype]  # of an array: shape after [row, position], dtype


def leaves(value: Any) -> list[mx.array]:
    """The arrays in nested tuples, lists and bags, in order."""
    if isinstance(value, mx.array):
        return [value]
    if is_bag(value):
        value = list(vars(value).values())
    if isinstance(value, tuple | list):
        return [leaf for item in value for leaf in leaves(item)]
    return []


def is_bag(value: Any) -> bool:
    """Whether `value` is a plain object of a family with arrays and numbers, neither module nor cache."""
    if isinstance(value, nn.Module | mx.array | type) or hasattr(value, "make_mask") or hasattr(value, "state"):
        return False
    fields: dict[str, Any] = getattr(value, "__dict__", {})
    return bool(fields) and all(f is None or isinstance(f, mx.array | int | float) for f in fields.values())


def is_plain(value: Any) -> bool:
    """Whether `value` can be rebuilt elsewhere: arrays, numbers and None in plain tuples and bags."""
    if type(value) is tuple:
        return all(is_plain(item) for item in value)
    return value is None or isinstance(value, mx.array | int | float) or is_bag(value)


def rebuilt(value: Any, change: Callable[[mx.array], Any]) -> Any:
    """Copy of `value` and its bags, with `change` applied to each array, in the order of `leaves`."""
    if type(value) is tuple:
        return tuple(rebuilt(item, change) for item in value)
    if is_bag(value):
        made = copy(value)
        vars(made).update((name, rebuilt(field, change)) for name, field in vars(value).items())
        return made
    return change(value) if isinstance(value, mx.array) else value


def snapshot(value: Any) -> Any:
    """Copy `value` with its bags, because later layers write into them."""
    return rebuilt(value, lambda array: array)


def row_axis(array: mx.array) -> int | None:
    """Index of the row axis if a probe's array has the axes [row, position, ...]: a value per token."""
    at = [i for i in range(array.ndim - 1) if array.shape[i : i + 2] == (ROWS, POSITIONS)]
    return at[0] if at and array.ndim > 2 else None


class SideInput(NamedTuple):
    """A per-token value from before the first layer that layers read."""

    uses: tuple[tuple[int, int | str], ...]  # (layer, position or name of the argument)
    tail: tuple[int, ...]  # shape after [row, position]
    dtype: mx.Dtype

    @property
    def last(self) -> int:
        return max(layer for layer, _ in self.uses)


Sides = dict[int, mx.array]


class Boundary:
    """The arrays sent after a layer: leaves `sent` of `sample` (its return value in the probe) and the side inputs
    `sides`, by number, that later layers read.

    Every sent array has the axes [row, position, ...]; side inputs of one shape and type share one array.
    """

    def __init__(self, sample: Any, sent: frozenset[int], sides: dict[int, SideInput]) -> None:
        arrays = leaves(sample)
        self._shape = rebuilt(sample, lambda _: mx.zeros(()))  # without the graph of the probe
        self._sent = sorted(sent)
        whole = [arrays[i] for i in self._sent]
        self._axes = [row_axis(array) or 0 for array in whole]
        self._groups = _groups(sides)
        own = [((*a.shape[:axis], *a.shape[axis + 2 :]), a.dtype) for a, axis in zip(whole, self._axes, strict=True)]
        grouped = [((len(numbers), *tail), dtype) for (tail, dtype), numbers in self._groups]
        self.kinds = [*own, *grouped]  # (shape after [row, position], dtype) of each sent array
        self.bytes_per_token = bytes_per_token(None, self.kinds)

    def blank(self, count: int, rows: int = 1) -> list[mx.array]:
        """Zeros for `count` positions in each of `rows` rows, in the sent form; not evaluated."""
        return [mx.zeros((rows, count, *tail), dtype) for tail, dtype in self.kinds]

    def pack(self, value: Any, sides: Sides) -> list[mx.array]:
        """Arrays [row, position, ...] to send, from a layer's return value and the side inputs [row, ...]."""
        arrays = leaves(value)
        own = [_rows_first(arrays[i], axis) for i, axis in zip(self._sent, self._axes, strict=True)]
        return own + [mx.stack([sides[n] for n in numbers], axis=2) for _, numbers in self._groups]

    def unpack(self, arrays: Sequence[mx.array]) -> tuple[Any, Sides]:
        """A layer's return value, None for unused parts, and the side inputs. Raises StageFailed for other arrays."""
        lead = arrays[0].shape[:2] if arrays else ()
        found = [(a.ndim > 2 and a.shape[:2] == lead, a.shape[2:], a.dtype) for a in arrays]
        if found != [(True, tail, dtype) for tail, dtype in self.kinds]:
            got = ", ".join(f"{a.dtype} {list(a.shape)}" for a in arrays)
            what = f"The previous stage sent {got or 'nothing'}, which does not fit this model's layers."
            raise StageFailed(what, "Run the same version of macluster and mlx-lm on every Mac.")
        own, grouped = arrays[: len(self._sent)], arrays[len(self._sent) :]
        places = zip(self._sent, own, self._axes, strict=True)
        back, number = {i: _rows_back(array, axis) for i, array, axis in places}, count()
        value = rebuilt(self._shape, lambda _: back.get(next(number)))
        pairs = zip(self._groups, grouped, strict=True)
        return value, {n: array[:, :, i] for (_, numbers), array in pairs for i, n in enumerate(numbers)}


def bytes_per_token(wire: WireType | None, kinds: Sequence[Kind]) -> int:
    """Bytes per position of arrays of these `kinds`; `wire` applies to real numbers only."""
    return sum(_bytes(wire, tail, dtype) for tail, dtype in kinds)


def _bytes(wire: WireType | None, tail: tuple[int, ...], dtype: mx.Dtype) -> int:
    if wire is None or not mx.issubdtype(dtype, mx.floating):
        return prod(tail) * dtype.size
    if wire == "int8":
        return prod(tail) + mx.float32.size * prod(tail[:-1])
    return prod(tail) * DTYPES[wire].size


def _groups(sides: dict[int, SideInput]) -> list[tuple[Kind, list[int]]]:
    """Group side inputs by shape and type, in order of their numbers."""
    found: dict[Kind, list[int]] = {}
    for number, side in sorted(sides.items()):
        found.setdefault((side.tail, side.dtype), []).append(number)
    return list(found.items())


def _rows_first(array: mx.array, axis: int) -> mx.array:
    if axis == 0:
        return array
    order = [axis, axis + 1, *(i for i in range(array.ndim) if i not in (axis, axis + 1))]
    return array.transpose(*order)


def _rows_back(array: mx.array, axis: int) -> mx.array:
    if axis == 0:
        return array
    order = [*range(2, 2 + axis), 0, 1, *range(2 + axis, array.ndim)]
    return array.transpose(*order)
