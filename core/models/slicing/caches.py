"""The cache list of a slice: full-length, because families index it, but only the slice's own entries hold anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import CacheList


class AbsentCache:
    """Stands for the cache of a layer that lives elsewhere and has no like here. `offset`: tokens seen so far."""

    start_position = 0

    def __init__(self) -> None:
        self.offset: int | mx.array = 0

    def maybe_trim_front(self) -> None:
        """Nothing is held, so there is nothing to trim; llama4 asks every chunked cache before each forward."""

    def make_mask(self, *args: Any, **kwargs: Any) -> None:
        """No mask: the layers that would use it do not run here."""

    def __getitem__(self, index: int) -> AbsentCache:
        """A part of a composite cache is as absent as the whole."""
        return self


class AbsentEmbeddingCache:
    """Stands for a cache of the embedding where no token is embedded: remembers nothing."""

    def __getitem__(self, index: int) -> None:
        """As in a cache that was never written."""
        return None

    def __setitem__(self, index: int, value: Any) -> None:
        """What is embedded here is made of no real tokens."""


def signature(cache: Any) -> tuple[Any, ...]:
    """Equal for caches that make the same masks at the same offset."""
    if isinstance(cache, CacheList):
        return (CacheList, *(signature(part) for part in cache.caches))
    return (type(cache), getattr(cache, "max_size", None), getattr(cache, "chunk_size", None))


def trim_limit(caches: Sequence[Any]) -> int | None:
    """All of `caches`, fresh ones, can be trimmed while they hold fewer tokens than this; None: always."""
    limits = [trim_limit(c.caches) if isinstance(c, CacheList) else _own_limit(c) for c in caches]
    return min((limit for limit in limits if limit is not None), default=None)


def _own_limit(cache: Any) -> int | None:
    # a rotating cache says that it can be trimmed until its window is full
    return getattr(cache, "max_size", None) if cache.is_trimmable() else 0


class SliceCaches:
    """Where the own entries of a slice stand in a cache list like `whole`, and what stands in the other places: an own
    entry of the same kind, else an AbsentCache. Families make their masks from the first cache of each kind, wherever
    that layer lives. `embedding`: entries that the embedding keeps of earlier tokens, for which nothing else can stand.
    """

    def __init__(self, whole: Sequence[Any], own: set[int], embedding: frozenset[int] = frozenset()) -> None:
        self.own = sorted(own)
        self._embedding = embedding
        first: dict[tuple[Any, ...], int] = {}
        for index in sorted(own - embedding):
            first.setdefault(signature(whole[index]), index)
        self._stands = [i if i in own else first.get(signature(c)) for i, c in enumerate(whole)]

    @property
    def size(self) -> int:
        """Entries of the full list."""
        return len(self._stands)

    def build(self, own: dict[int, Any]) -> list[Any]:
        """The full list from the slice's own entries, by index."""
        of_layer, of_embedding = AbsentCache(), AbsentEmbeddingCache()
        absent = [of_embedding if at in self._embedding else of_layer for at in range(len(self._stands))]
        return [absent[at] if i is None else own[i] for at, i in enumerate(self._stands)]

    def without_embedding(self, caches: list[Any]) -> list[Any]:
        """`caches` for a forward whose tokens are not real."""
        if not self._embedding:
            return caches
        return [AbsentEmbeddingCache() if at in self._embedding else cache for at, cache in enumerate(caches)]


def absent_caches(caches: Sequence[Any]) -> list[AbsentCache]:
    """The stand-ins in a cache list, each once."""
    return list({id(c): c for c in caches if isinstance(c, AbsentCache)}.values())
