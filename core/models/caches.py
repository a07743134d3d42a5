"""The cache list of a slice: full-length, because families index it, but only the slice's own entries hold anything."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import CacheList


class Phantom:
    """Stands for the cache of a layer that lives elsewhere and has no like here. `offset`: tokens seen so far."""

    start_position = 0

    def __init__(self) -> None:
        self.offset: int | mx.array = 0

    def maybe_trim_front(self) -> None:
        """Nothing is held, so there is nothing to trim; llama4 asks every chunked cache before each forward."""

    def make_mask(self, *args: Any, **kwargs: Any) -> None:
        """No mask: the layers that would use it do not run here."""

    def __getitem__(self, index: int) -> Phantom:
        """A part of a composite cache is as absent as the whole."""
        return self


def signature(cache: Any) -> tuple[Any, ...]:
    """Equal for caches that make the same masks at the same offset."""
    if isinstance(cache, CacheList):
        return (CacheList, *(signature(part) for part in cache.caches))
    return (type(cache), getattr(cache, "max_size", None), getattr(cache, "chunk_size", None))


def stage_caches(whole: list[Any], own: set[int]) -> list[Any]:
    """`whole` with the entries outside `own` replaced by an own entry of the same kind, else by a Phantom.

    Families make their masks from the first cache of each kind, wherever that layer lives.
    """
    alike: dict[tuple[Any, ...], Any] = {}
    for index in sorted(own):
        alike.setdefault(signature(whole[index]), whole[index])
    phantom = Phantom()
    return [c if i in own else alike.get(signature(c), phantom) for i, c in enumerate(whole)]


def move_phantoms(caches: list[Any], position: int | mx.array) -> None:
    """Tells stand-ins how many tokens their layers have seen: a number, or one per row."""
    for cache in caches:
        if isinstance(cache, Phantom):
            cache.offset = position
