"""Finds positions where a model must not be cut: between layers that share a cache, keys or another unsent value.

A traced forward also shows layers that borrow the keys of an earlier layer, as in gemma.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from core.models.slicing.boundary import POSITIONS, row_axis
from core.models.slicing.forward_tracer import Call, ids, is_float


def forbidden_cuts(calls: list[Call], borrowed: set[int]) -> set[int]:
    """All forbidden cuts; `borrowed` comes from `cuts_at_borrowed_keys`."""
    return cuts_at_shared_caches(calls) | cuts_at_far_reads(calls) | borrowed


def cuts_at_shared_caches(calls: list[Call]) -> set[int]:
    """Cuts between two layers that use the same cache."""
    illegal: set[int] = set()
    first: dict[int, int] = {}
    for call in calls:
        if call.cache is not None:
            illegal.update(range(first.setdefault(call.cache, call.layer) + 1, call.layer + 1))
    return illegal


def cuts_at_far_reads(calls: list[Call]) -> set[int]:
    """Cuts that a value would have to skip: an array that is read later than in the next layer or isn't per token (an
    earlier layer's keys, which grow with the context), or an entry of a dict that layers share.
    """
    illegal: set[int] = set()
    made: dict[int, tuple[int, bool]] = {}
    written: dict[Any, int] = {}
    for call in calls:
        for array in call.given:
            if id(array) in made:
                source, travels = made[id(array)]
                illegal.update(range(source + 1, call.layer + 1) if not travels else range(source + 1, call.layer))
        made.update((id(array), (call.layer, row_axis(array) is not None)) for array in call.made)
        for key in call.read & written.keys():
            illegal.update(range(written[key] + 1, call.layer + 1))
        written.update(dict.fromkeys(call.written, call.layer))
    return illegal


def cuts_at_borrowed_keys(calls: list[Call]) -> set[int] | None:
    """Cuts between a layer and a later one that gets its keys through outside code; None if their source is unknown."""
    owner = {call.cache: call.layer for call in calls if call.cache is not None}
    illegal: set[int] = set()
    known = ids(calls[0].given)
    sources: set[int] = set()
    for call in calls:
        sources |= call.touched
        for array in call.given:
            if id(array) not in known and _looks_like_keys(array):
                if not sources:
                    return None
                illegal.update(range(min(owner[c] for c in sources) + 1, call.layer + 1))
        known |= ids(call.made)
    return illegal


def _looks_like_keys(array: mx.array) -> bool:
    return array.ndim == 4 and array.shape[-1] != POSITIONS and row_axis(array) is None and is_float(array)
