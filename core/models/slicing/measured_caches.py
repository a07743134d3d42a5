"""Measures the cache bytes of each layer on real caches after a dry forward, which computes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import make_prompt_cache

from core.models.files.cache_size import CacheSize
from core.models.slicing.cache_state import FEW, KEYS, KNOWN, arrays, parts, settled
from core.models.slicing.caches import quantised
from core.models.slicing.probe import ModelProbe
from core.settings import PREFILL_CHUNK

# The growth of an unknown kind of cache between these lengths shows its final rate: no window is longer than the first,
# and token groups that share an entry divide both.
_FAR: Final = (1024, 2048)


def cache_sizes(model: nn.Module, probe: ModelProbe, kv_bits: Sequence[int]) -> tuple[CacheSize, ...]:
    """Size of every layer's cache, plain and for each of `kv_bits` that mlx-lm supports for it.

    A shared cache counts for its first layer; one without a layer counts for layer 0. Computes nothing; the weights may
    be placeholders (`core.models.slicing.loading.weightless`).
    """
    caches = _filled(model, probe, FEW)
    if all(isinstance(part, KNOWN) for layer in caches for cache in layer for part in parts(cache)):
        return tuple(_of_known(layer, kv_bits) for layer in caches)
    near, far = (_filled(model, probe, tokens) for tokens in _FAR)
    return tuple(_by_growth(_nbytes(before), _nbytes(after)) for before, after in zip(near, far, strict=True))


def _filled(model: nn.Module, probe: ModelProbe, tokens: int) -> list[list[Any]]:
    """Every layer's caches after a forward of `tokens` tokens."""
    caches: list[Any] = make_prompt_cache(model)
    model(mx.zeros((1, tokens), mx.int32), cache=caches)
    layers: list[list[Any]] = [[] for _ in range(probe.layers)]
    for index, cache in enumerate(caches):
        layers[probe.cache_of.index(index) if index in probe.cache_of else 0].append(cache)
    return layers


def _of_known(caches: list[Any], kv_bits: Sequence[int]) -> CacheSize:
    fixed = grows = windowed = window = 0
    for part in (part for cache in caches for part in parts(settled(cache))):
        if not isinstance(part, KEYS):
            fixed += _nbytes([part])
        elif held := arrays(part):
            a_token = _nbytes([part]) // held[0].shape[2]
            if longest := getattr(part, "max_size", None) or getattr(part, "chunk_size", None):
                # a prompt chunk is appended whole before the window is trimmed
                window, windowed = max(window, longest + PREFILL_CHUNK), windowed + a_token
            else:
                grows += a_token
    packed = {bits: _of_known([quantised(cache, bits) for cache in caches], ()) for bits in kv_bits}
    return CacheSize(
        fixed_bytes=fixed,
        bytes_per_token=grows,
        window_bytes_per_token=windowed,
        window=window,
        quantised={bits: size.bytes_per_token for bits, size in packed.items()},
    )


def _by_growth(near: int, far: int) -> CacheSize:
    tokens, more = _FAR[0], _FAR[1] - _FAR[0]
    grows = -(-(far - near) // more)
    return CacheSize(fixed_bytes=max(0, near - tokens * grows), bytes_per_token=grows)


def _nbytes(caches: Iterable[Any]) -> int:
    return sum(array.nbytes for cache in caches for array in arrays(cache))
