"""What crosses a cut: which arrays of a layer's return value travel, and how the next stage gets the value back.

Most families return one array. A few return a tuple, of which the next layer reads only a part; the probe sees which.
The layer before a cut decides, so both sides of a cut find the same answer from the same code and config.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from core.errors import StageFailed


def leaves(value: Any) -> list[mx.array]:
    """The arrays in nested tuples, lists and dicts, in order."""
    if isinstance(value, mx.array):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, tuple | list):
        return [leaf for item in value for leaf in leaves(item)]
    return []


def is_plain(value: Any) -> bool:
    """Whether `value` is made of arrays, numbers and None in plain tuples: something that can be rebuilt elsewhere."""
    if type(value) is tuple:
        return all(is_plain(item) for item in value)
    return value is None or isinstance(value, mx.array | int | float)


class Boundary:
    """The arrays that leave a layer: `sent` counts leaves of the return value `sample`, a value of one row and one
    or more positions. Every sent array has the axes [batch, position, ...].
    """

    def __init__(self, sample: Any, sent: frozenset[int]) -> None:
        arrays = leaves(sample)
        positions = arrays[0].shape[1]
        self._shape = _outline(sample, sent)
        self._sent = sorted(sent)
        self._tails = [arrays[i].shape[2:] for i in self._sent]
        self._dtypes = [arrays[i].dtype for i in self._sent]
        self.bytes_per_token = sum(arrays[i].nbytes for i in self._sent) // positions

    def pack(self, value: Any) -> list[mx.array]:
        """The arrays [B, L, ...] to send, from what the layer returned."""
        arrays = leaves(value)
        return [arrays[i] for i in self._sent]

    def unpack(self, arrays: list[mx.array]) -> Any:
        """What the layer returned, with None for the parts that nobody reads; raises StageFailed for a wrong shape."""
        found = [(a.ndim > 2 and a.shape[:2] == arrays[0].shape[:2], a.shape[2:], a.dtype) for a in arrays]
        if found != [(True, tail, dtype) for tail, dtype in zip(self._tails, self._dtypes, strict=True)]:
            got = ", ".join(f"{a.dtype} {list(a.shape)}" for a in arrays)
            raise StageFailed(
                f"The previous stage sent {got or 'nothing'}, which is not what this model's layers hand on.",
                "Run the same version of macluster and mlx-lm on every Mac.",
            )
        return _fill(self._shape, iter(arrays))


class _Hole:
    """Stands for a sent array in the outline of a return value."""


_HOLE = _Hole()


def _outline(sample: Any, sent: frozenset[int]) -> Any:
    counter = iter(range(len(leaves(sample))))

    def walk(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(walk(item) for item in value)
        return _HOLE if isinstance(value, mx.array) and next(counter) in sent else None

    return walk(sample)


def _fill(outline: Any, arrays: Any) -> Any:
    if isinstance(outline, tuple):
        return tuple(_fill(item, arrays) for item in outline)
    return next(arrays) if outline is _HOLE else None
