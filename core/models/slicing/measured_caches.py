"""Measures caches in a dry forward, which computes nothing: their bytes, and whether rows can share a batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import make_prompt_cache

from core.models.files.cache_size import CacheSize
from core.models.slicing.boundary import ROWS
from core.models.slicing.cache_state import FEW, KEYS, KNOWN, arrays, parts, settled
from core.models.slicing.caches import KV_GROUP, quantised
from core.models.slicing.probe import ModelProbe
from core.models.slicing.quirks import wrong_in_batches
from core.settings import KV_BITS, PREFILL_CHUNK

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


def _caches_after(model: nn.Module, tokens: int) -> list[Any]:
    caches: list[Any] = make_prompt_cache(model)
    model(mx.zeros((1, tokens), mx.int32), cache=caches)
    return caches


def _filled(model: nn.Module, probe: ModelProbe, tokens: int) -> list[list[Any]]:
    """Every layer's caches after a forward of `tokens` tokens."""
    caches = _caches_after(model, tokens)
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


_LENGTHS: Final = (3, 5)


def one_row(model: nn.Module, probe: ModelProbe) -> str:
    """Why rows cannot share a batch; "" if they can. Computes nothing."""
    kinds = {type(part).__name__: part for cache in make_prompt_cache(model) for part in parts(cache)}
    for name, part in kinds.items():
        if not hasattr(part, "merge"):
            return f"mlx-lm cannot batch its cache ({name})"
    if probe.reads_caches:
        return "layers that borrow keys do not see the padding of shorter rows"
    if wrong := wrong_in_batches(model):
        return wrong
    try:
        _dry_run(model)
    except (AttributeError, IndexError, TypeError, ValueError, RuntimeError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        return f"mlx-lm's code for this family takes one row at a time ({reason})"
    return ""


def whole_bits(model: nn.Module) -> str:
    """Why the caches cannot be quantised; "" if mlx-lm's `kv_bits` works. Computes nothing."""
    plain = [cache for cache in _caches_after(model, _LENGTHS[0]) if hasattr(cache, "to_quantized")]
    for cache in plain:
        try:
            cache.to_quantized(group_size=KV_GROUP, bits=KV_BITS[0])
        except NotImplementedError:
            return f"mlx-lm cannot quantise its caches ({type(cache).__name__})"
        except ValueError:
            return f"its heads are no multiple of {KV_GROUP} numbers wide"
    return "" if plain else "it keeps no keys and values"


def _dry_run(model: nn.Module) -> None:
    alone = [_caches_after(model, length) for length in _LENGTHS]
    rows = [alone[number % len(alone)] for number in range(ROWS)]
    merged = [type(parts[0]).merge(list(parts)) for parts in zip(*rows, strict=True)]
    model(mx.zeros((ROWS, 1), mx.int32), cache=merged)
