"""From which tensors of its files a lazily built model's arrays are made, read out of MLX's own graph.

A family's `sanitize` may rename tensors, stack one per expert, split fused ones, add one to norms or undo fp8. Whatever
it does, it leaves each array as a graph that begins at promises to read a tensor's bytes. No rule per family is needed,
and none can be wrong.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping
from typing import Final

import mlx.core as mx

# mlx names an operation in this text by its address, which holds as long as an array that it makes is alive
_PROMISE: Final = re.compile(r"^\{ (\d+) \[label =\"Load\"", re.MULTILINE)


def origins(tensors: Mapping[str, mx.array], arrays: Iterable[mx.array]) -> frozenset[str]:
    """The names of those `tensors`, as `mx.load` gave them, whose bytes are read when `arrays` are evaluated.

    A tensor that was evaluated since has left the graph; it counts, for whoever built the arrays had to look at it.
    """
    promises = {name: _promises([tensor]) for name, tensor in tensors.items()}
    wanted = _promises(arrays)
    return frozenset(name for name, own in promises.items() if not own or own & wanted)


def _promises(arrays: Iterable[mx.array]) -> set[str]:
    text = io.StringIO()
    mx.export_to_dot(text, *arrays)
    return set(_PROMISE.findall(text.getvalue()))
