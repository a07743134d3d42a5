"""Finds the file tensors that a lazily built model's arrays are made from, by reading MLX's graph.

A family's `sanitize` may rename tensors, stack one per expert, split fused ones, add one to norms or undo fp8. It
always leaves each array as a graph of lazy reads of tensors, so no rules per family are needed.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping
from typing import Final

import mlx.core as mx

# mlx names an operation in this text by its address, which is valid as long as an array made by it exists
_PROMISE: Final = re.compile(r"^\{ (\d+) \[label =\"Load\"", re.MULTILINE)


def origins(tensors: Mapping[str, mx.array], arrays: Iterable[mx.array]) -> frozenset[str]:
    """Names of the `tensors` (as returned by `mx.load`) that are read when `arrays` are evaluated. A tensor that was
    already evaluated is no longer in the graph; it counts, because building the arrays needed it.
    """
    promises = {name: _promises([tensor]) for name, tensor in tensors.items()}
    wanted = _promises(arrays)
    return frozenset(name for name, own in promises.items() if not own or own & wanted)


def _promises(arrays: Iterable[mx.array]) -> set[str]:
    text = io.StringIO()
    mx.export_to_dot(text, *arrays)
    return set(_PROMISE.findall(text.getvalue()))
