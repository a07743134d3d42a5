"""Cache lists of a slice: full-length, because families index them, but only the slice's own entries hold data."""

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
    """Placeholder for the cache of a layer on another stage. `offset`: tokens seen so far."""

    start_position = 0

    def __init__(self) -> None:
        self.offset: int | mx.array = 0

    def maybe_trim_front(self) -> None:
        """Do nothing; llama4 calls this on every chunked cache before each forward."""

    def make_mask(self, *args: Any, **kwargs: Any) -> None:
        """No mask, because the layers that would use it don't run here."""

    def __getitem__(self, index: int) -> AbsentCache:
        return self


class AbsentEmbeddingCache:
    """Placeholder for a cache of the embedding on a stage without embedding."""

    def __getitem__(self, index: int) -> None:
        return None

    def __setitem__(self, index: int, value: Any) -> None:
        """Ignore the entry, because it isn't made of real tokens."""


def signature(cache: Any) -> tuple[Any, ...]:
    """Key that is equal for caches that make the same masks at the same offset."""
    if isinstance(cache, CacheList):
        return (CacheList, *(signature(part) for part in cache.caches))
    return (type(cache), getattr(cache, "max_size", None), getattr(cache, "chunk_size", None))


def trim_limit(caches: Sequence[Any]) -> int | None:
    """Maximum number of tokens (exclusive) up to which fresh `caches` can be trimmed; None: always."""
    limits = [trim_limit(c.caches) if isinstance(c, CacheList) else _own_limit(c) for c in caches]
    return min((limit for limit in limits if limit is not None), default=None)


def _own_limit(cache: Any) -> int | None:
    # a rotating cache reports that it can be trimmed until its window is full
    return getattr(cache, "max_size", None) if cache.is_trimmable() else 0


class SliceCaches:
    """Makes and changes the cache lists of a slice, always at full length.

    `make` returns fresh caches of the whole model; `own` are the indices of the slice's caches. The other places hold
    an own cache of the same kind, else an AbsentCache, because families make their masks from the first cache of each
    kind, wherever that layer runs. `embedding`: indices in which the embedding keeps earlier tokens.
    """

    def __init__(self, make: Callable[[], list[Any]], own: set[int], embedding: frozenset[int] = frozenset()) -> None:
        self._make, self._embedding = make, embedding
        whole = make()
        # positions of the slice's caches in the whole model's list
        self.indices = tuple(sorted(own))
        # number of caches of the whole model
        self.count = len(whole)
        # maximum tokens at which the whole model's caches can be trimmed; None: always
        self.trim_limit = trim_limit(whole)
        first: dict[tuple[Any, ...], int] = {}
        for index in sorted(own - embedding):
            first.setdefault(signature(whole[index]), index)
        self._stands = [i if i in own else first.get(signature(c)) for i, c in enumerate(whole)]

    def new(self) -> list[Any]:
        whole = self._make()
        return self.build({i: whole[i] for i in self.indices})

    def own(self, caches: Sequence[Any]) -> list[Any]:
        """The slice's own caches, each once: those to trim or save."""
        return [caches[i] for i in self.indices]

    def merge(self, rows: Sequence[Sequence[Any]]) -> list[Any]:
        """Merge rows prefilled alone, padding shorter ones on the left, for a model whose rows can share a batch."""
        return self.build({i: type(rows[0][i]).merge([row[i] for row in rows]) for i in self.indices})

    def extend(self, caches: list[Any], more: Sequence[Any]) -> list[Any]:
        """Append the rows of `more`, a merged list that is used up, to the merged list `caches`."""
        for cache, other in zip(self.own(caches), self.own(more), strict=True):
            cache.extend(other)
        return caches

    def keep(self, caches: list[Any], rows: Sequence[int]) -> list[Any]:
        """Keep only these rows of the merged list `caches`, in this order."""
        chosen = mx.array(list(rows))
        for cache in self.own(caches):
            cache.filter(chosen)
        return caches

    def extract(self, caches: Sequence[Any], row: int) -> list[Any]:
        return self.build({i: caches[i].extract(row) for i in self.indices})

    def copy(self, caches: Sequence[Any]) -> list[Any]:
        """Independent copy; MLX shares the memory until one of them is written."""
        return self.build(dict(zip(self.indices, deepcopy(self.own(caches)), strict=True)))

    def trim(self, caches: list[Any], count: int) -> list[Any]:
        """Drop the last `count` tokens of every row, if `trim_limit` allows it."""
        for cache in self.own(caches):
            cache.trim(count)
        if count < MANY:
            return caches
        # mlx-lm only moves the end and would keep the memory of the trimmed tokens
        return self.build({index: settled(caches[index]) for index in self.indices})

    def prepare(
        self,
        caches: list[Any],
        left_padding: Sequence[int] | None,
        lengths: Sequence[int] | None,
        right_padding: Sequence[int] | None,
    ) -> list[Any]:
        """Prepare the merged list `caches` for the padding of each row's next tokens."""
        for cache in self.own(caches):
            cache.prepare(left_padding=left_padding, lengths=lengths, right_padding=right_padding)
        return caches

    def finalise(self, caches: list[Any]) -> list[Any]:
        """Move padding of the merged list `caches` from the right to the left."""
        for cache in self.own(caches):
            cache.finalize()
        return caches

    def quantise(self, caches: Sequence[Any], bits: int) -> list[Any]:
        """Quantise the slice's plain caches to `bits` bits, like mlx-lm's `kv_bits` after each step. Such rows cannot
        be merged. Raises UnsupportedModel if mlx-lm cannot quantise a cache of this family.
        """
        try:
            own = {i: quantised(caches[i], bits) for i in self.indices}
        except (NotImplementedError, ValueError) as error:
            what = f"mlx-lm cannot keep this model's cache in {bits} bits: {error}."
            raise UnsupportedModel(what, "Load it without --kv-bits.") from error
        return self.build(own)

    def states(self, caches: Sequence[Any]) -> list[Any]:
        """Arrays to evaluate with each step, because boundary and logits don't depend on all of them."""
        return [cache.state for cache in self.own(caches) if not cache.empty()]

    def nbytes(self, caches: Sequence[Any]) -> int:
        return sum(cache.nbytes for cache in self.own(caches) if not cache.empty())

    def build(self, own: Mapping[int, Any]) -> list[Any]:
        """Full-length list from the slice's own caches by index."""
        of_layer, of_embedding = AbsentCache(), AbsentEmbeddingCache()
        absent = [of_embedding if at in self._embedding else of_layer for at in range(self.count)]
        return [absent[at] if i is None else own[i] for at, i in enumerate(self._stands)]

    def without_embedding(self, caches: list[Any]) -> list[Any]:
        """`caches` for a forward with placeholder token ids."""
        if not self._embedding:
            return caches
        return [AbsentEmbeddingCache() if at in self._embedding else cache for at, cache in enumerate(caches)]


def quantised(cache: Any, bits: int) -> Any:
    """`cache` in `bits` bits, or unchanged if mlx-lm's `kv_bits` ignores it."""
    return cache.to_quantized(group_size=KV_GROUP, bits=bits) if hasattr(cache, "to_quantized") else cache


def absent_caches(caches: Sequence[Any]) -> list[AbsentCache]:
    """The placeholders in a cache list, each once."""
    return list({id(c): c for c in caches if isinstance(c, AbsentCache)}.values())
