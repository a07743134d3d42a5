"""What crosses a cut: which arrays of a layer's return value travel, and how the next stage gets the value back.

Most families return one array. A few return a tuple, of which the next layer reads only a part; some hand every layer,
beside the hidden state, a value made from the tokens before the first layer (a side input), which then travels too, so
that a stage behind the cut needs neither token ids nor the embedding. The probe sees all of it. Both sides of a cut
find the same answer from the same code and config.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from itertools import count
from typing import Any, Final, NamedTuple

import mlx.core as mx
import mlx.nn as nn

from core.errors import StageFailed
from core.models.slicing.wire_types import bytes_per_token

# primes that are no usual count of heads or streams, so that the axes of a probe's arrays can be told by their lengths
ROWS: Final = 13
POSITIONS: Final = 11


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
    """Whether `value` is an object of a family that just holds arrays and numbers, no module and no cache."""
    if isinstance(value, nn.Module | mx.array | type) or hasattr(value, "make_mask") or hasattr(value, "state"):
        return False
    fields: dict[str, Any] = getattr(value, "__dict__", {})
    return bool(fields) and all(f is None or isinstance(f, mx.array | int | float) for f in fields.values())


def is_plain(value: Any) -> bool:
    """Whether `value` is made of arrays, numbers and None in plain tuples and bags: it can be rebuilt elsewhere."""
    if type(value) is tuple:
        return all(is_plain(item) for item in value)
    return value is None or isinstance(value, mx.array | int | float) or is_bag(value)


def snapshot(value: Any) -> Any:
    """`value` with its bags copied, since later layers write into them."""
    if type(value) is tuple:
        return tuple(snapshot(item) for item in value)
    return copy(value) if is_bag(value) else value


def row_axis(array: mx.array) -> int | None:
    """Where a probe's array has the axes [row, position], and others: it is a value for each token."""
    at = [i for i in range(array.ndim - 1) if array.shape[i : i + 2] == (ROWS, POSITIONS)]
    return at[0] if at and array.ndim > 2 else None


class SideInput(NamedTuple):
    """A value for each token that layers get from before the first layer.

    `uses`: (layer, position or name of the argument). `tail`: shape behind [row, position].
    """

    uses: tuple[tuple[int, int | str], ...]
    tail: tuple[int, ...]
    dtype: mx.Dtype

    @property
    def last(self) -> int:
        """The last layer that reads it."""
        return max(layer for layer, _ in self.uses)


Sides = dict[int, mx.array]


class Boundary:
    """The arrays that leave a layer: `sent` counts leaves of `sample`, what the layer returned in a probe; `sides` are
    the side inputs, by number, that layers behind it read.

    On the wire every array has the axes [row, position, ...]; side inputs of one shape and type travel as one array.
    """

    def __init__(self, sample: Any, sent: frozenset[int], sides: dict[int, SideInput]) -> None:
        arrays = leaves(sample)
        self._shape = _outline(sample, sent)
        self._sent = sorted(sent)
        self._axes = [row_axis(arrays[i]) or 0 for i in self._sent]
        self._groups = _groups(sides)
        own = [(_tail(arrays[i], axis), arrays[i].dtype) for i, axis in zip(self._sent, self._axes, strict=True)]
        grouped = [((len(numbers), *tail), dtype) for (tail, dtype), numbers in self._groups]
        self.kinds = [*own, *grouped]  # shape behind [row, position], and type, of each array on the wire
        self.bytes_per_token = bytes_per_token(None, self.kinds)

    def blank(self, count: int, rows: int = 1) -> list[mx.array]:
        """Zeros for `count` positions of each of `rows` rows, as they would arrive; not evaluated."""
        return [mx.zeros((rows, count, *tail), dtype) for tail, dtype in self.kinds]

    def pack(self, value: Any, sides: Sides) -> list[mx.array]:
        """The arrays [row, position, ...] to send, from what the layer returned and the side inputs [row, ...]."""
        arrays = leaves(value)
        own = [_rows_first(arrays[i], axis) for i, axis in zip(self._sent, self._axes, strict=True)]
        return own + [mx.stack([sides[n] for n in numbers], axis=2) for _, numbers in self._groups]

    def unpack(self, arrays: Sequence[mx.array]) -> tuple[Any, Sides]:
        """What the layer returned, with None for the parts that nobody reads, and the side inputs.

        Raises StageFailed for arrays of another shape or type.
        """
        lead = arrays[0].shape[:2] if arrays else ()
        found = [(a.ndim > 2 and a.shape[:2] == lead, a.shape[2:], a.dtype) for a in arrays]
        if found != [(True, tail, dtype) for tail, dtype in self.kinds]:
            got = ", ".join(f"{a.dtype} {list(a.shape)}" for a in arrays)
            raise StageFailed(
                f"The previous stage sent {got or 'nothing'}, which is not what this model's layers hand on.",
                "Run the same version of macluster and mlx-lm on every Mac.",
            )
        own, grouped = arrays[: len(self._sent)], arrays[len(self._sent) :]
        value = _fill(self._shape, (_rows_back(a, axis) for a, axis in zip(own, self._axes, strict=True)))
        pairs = zip(self._groups, grouped, strict=True)
        return value, {n: array[:, :, i] for (_, numbers), array in pairs for i, n in enumerate(numbers)}


def _groups(sides: dict[int, SideInput]) -> list[tuple[tuple[tuple[int, ...], mx.Dtype], list[int]]]:
    """Side inputs by shape and type, in order of their numbers."""
    found: list[tuple[tuple[tuple[int, ...], mx.Dtype], list[int]]] = []
    for number, side in sorted(sides.items()):
        kind = (side.tail, side.dtype)
        numbers = next((n for k, n in found if k == kind), None)
        if numbers is None:
            found.append((kind, [number]))
        else:
            numbers.append(number)
    return found


def _tail(array: mx.array, axis: int) -> tuple[int, ...]:
    return (*array.shape[:axis], *array.shape[axis + 2 :])


def _rows_first(array: mx.array, axis: int) -> mx.array:
    """[..., row, position, ...] as [row, position, ...]."""
    if axis == 0:
        return array
    order = [axis, axis + 1, *(i for i in range(array.ndim) if i not in (axis, axis + 1))]
    return array.transpose(*order)


def _rows_back(array: mx.array, axis: int) -> mx.array:
    if axis == 0:
        return array
    order = [*range(2, 2 + axis), 0, 1, *range(2 + axis, array.ndim)]
    return array.transpose(*order)


class _Hole:
    """Stands for a sent array in the outline of a return value."""


_HOLE = _Hole()


def _outline(sample: Any, sent: frozenset[int]) -> Any:
    """`sample` with a hole for each sent array and None for the others."""
    counter = count()

    def walk(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(walk(item) for item in value)
        if is_bag(value):
            return _with_fields(value, [walk(field) for field in vars(value).values()])
        if isinstance(value, mx.array):
            return _HOLE if next(counter) in sent else None
        return value

    return walk(sample)


def _fill(outline: Any, arrays: Iterator[mx.array]) -> Any:
    if isinstance(outline, tuple):
        return tuple(_fill(item, arrays) for item in outline)
    if outline is _HOLE:
        return next(arrays)
    if not isinstance(outline, int | float) and outline is not None:
        return _with_fields(outline, [_fill(field, arrays) for field in vars(outline).values()])
    return outline


def _with_fields(bag: Any, fields: list[Any]) -> Any:
    made = copy(bag)
    vars(made).update(zip(vars(bag), fields, strict=True))
    return made
