"""The cache list of a slice: full-length, because families index it, but only the slice's own entries hold anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

import mlx.core as mx
from mlx_lm.models.cache import CacheList

from core.errors import UnsupportedModel
from core.models.slicing.cache_state import settled

# mlx-lm's default for `kv_bits`
KV_GROUP: Final = 64
# tokens for which mlx-lm's caches allocate memory at a time
MANY: Final = 256


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
    """Makes and changes the cache lists of a slice. Every list has the full length, because families index it.

    `make` gives fresh caches of the whole model. `own`: the indices of those that belong to the slice; in the other
    places stands an own entry of the same kind, else an AbsentCache. Families make their masks from the first cache of
    each kind, wherever that layer lives. `embedding`: the indices in which the embedding keeps earlier tokens, which
    nothing else can replace.
    """

    def __init__(self, make: Callable[[], list[Any]], own: set[int], embedding: frozenset[int] = frozenset()) -> None:
        self._make, self._embedding = make, embedding
        whole = make()
        # where the slice's own entries stand in the list of the whole model
        self.indices = tuple(sorted(own))
        # how many caches the whole model has
        self.count = len(whole)
        # the caches of the whole model can be trimmed while they hold fewer tokens; None: always
        self.trim_limit = trim_limit(whole)
        first: dict[tuple[Any, ...], int] = {}
        for index in sorted(own - embedding):
            first.setdefault(signature(whole[index]), index)
        self._stands = [i if i in own else first.get(signature(c)) for i, c in enumerate(whole)]

    def new(self) -> list[Any]:
        """A list for new rows."""
        whole = self._make()
        return self.build({i: whole[i] for i in self.indices})

    def own(self, caches: Sequence[Any]) -> list[Any]:
        """The entries that belong to the slice: what may be trimmed or saved, each once."""
        return [caches[i] for i in self.indices]

    def merge(self, rows: Sequence[Sequence[Any]]) -> list[Any]:
        """One list for rows that were prefilled alone, in their order; shorter rows are padded on the left.

        For a model that `core.models.slicing.batching.one_row` lets share a batch.
        """
        return self.build({i: type(rows[0][i]).merge([row[i] for row in rows]) for i in self.indices})

    def extend(self, caches: list[Any], more: Sequence[Any]) -> list[Any]:
        """`caches`, a merged list, with the rows of another merged list after its own; `more` is used up."""
        for cache, other in zip(self.own(caches), self.own(more), strict=True):
            cache.extend(other)
        return caches

    def keep(self, caches: list[Any], rows: Sequence[int]) -> list[Any]:
        """`caches`, a merged list, with these rows only, in this order."""
        chosen = mx.array(list(rows))
        for cache in self.own(caches):
            cache.filter(chosen)
        return caches

    def extract(self, caches: Sequence[Any], row: int) -> list[Any]:
        """A copy of one row of `caches`, a merged list."""
        return self.build({i: caches[i].extract(row) for i in self.indices})

    def copy(self, caches: Sequence[Any]) -> list[Any]:
        """A list that does not change with `caches`; MLX shares the memory until one of them is written to."""
        return self.build(dict(zip(self.indices, deepcopy(self.own(caches)), strict=True)))

    def trim(self, caches: list[Any], count: int) -> list[Any]:
        """`caches` without the last `count` tokens of every row, if `trim_limit` allows it."""
        for cache in self.own(caches):
            cache.trim(count)
        if count < MANY:
            return caches
        # mlx-lm only moves the end: the memory of the trimmed tokens would stay
        return self.build({index: settled(caches[index]) for index in self.indices})

    def prepare(
        self,
        caches: list[Any],
        left_padding: Sequence[int] | None,
        lengths: Sequence[int] | None,
        right_padding: Sequence[int] | None,
    ) -> list[Any]:
        """`caches`, a merged list, prepared for the padding of each row's next tokens."""
        for cache in self.own(caches):
            cache.prepare(left_padding=left_padding, lengths=lengths, right_padding=right_padding)
        return caches

    def finalise(self, caches: list[Any]) -> list[Any]:
        """`caches`, a merged list, with padding moved from the right to the left."""
        for cache in self.own(caches):
            cache.finalize()
        return caches

    def quantise(self, caches: Sequence[Any], bits: int) -> list[Any]:
        """`caches` with the slice's plain ones in `bits` bits, as mlx-lm's `kv_bits` makes them after each step.

        Such rows cannot be merged. Raises UnsupportedModel if mlx-lm cannot quantise a cache of this family.
        """
        try:
            own = {i: quantised(caches[i], bits) for i in self.indices}
        except (NotImplementedError, ValueError) as error:
            raise UnsupportedModel(
                f"mlx-lm cannot keep this model's cache in {bits} bits: {error}.", "Load it without --kv-bits."
            ) from error
        return self.build(own)

    def states(self, caches: Sequence[Any]) -> list[Any]:
        """The arrays to evaluate with each step: not all of them are dependencies of the boundary or the logits."""
        return [cache.state for cache in self.own(caches) if not cache.empty()]

    def nbytes(self, caches: Sequence[Any]) -> int:
        """Bytes of the slice's own caches."""
        return sum(cache.nbytes for cache in self.own(caches) if not cache.empty())

    def build(self, own: Mapping[int, Any]) -> list[Any]:
        """The full list from the slice's own entries, by index."""
        of_layer, of_embedding = AbsentCache(), AbsentEmbeddingCache()
        absent = [of_embedding if at in self._embedding else of_layer for at in range(self.count)]
        return [absent[at] if i is None else own[i] for at, i in enumerate(self._stands)]

    def without_embedding(self, caches: list[Any]) -> list[Any]:
        """`caches` for a forward whose token ids are not real."""
        if not self._embedding:
            return caches
        return [AbsentEmbeddingCache() if at in self._embedding else cache for at, cache in enumerate(caches)]


def quantised(cache: Any, bits: int) -> Any:
    """`cache` in `bits` bits, or unchanged if mlx-lm's `kv_bits` leaves it alone."""
    return cache.to_quantized(group_size=KV_GROUP, bits=bits) if hasattr(cache, "to_quantized") else cache


def absent_caches(caches: Sequence[Any]) -> list[AbsentCache]:
    """The stand-ins in a cache list, each once."""
    return list({id(c): c for c in caches if isinstance(c, AbsentCache)}.values())
