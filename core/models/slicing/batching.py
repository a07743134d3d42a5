"""Whether rows of different lengths may share a batch without changing any row's logits.

Most families can. The others lack a batch cache, or use one position for all rows. A dry run of two rows, which
computes nothing, finds out.
"""

from __future__ import annotations

from typing import Any, Final

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import make_prompt_cache

from core.models.slicing.cache_state import parts
from core.models.slicing.caches import KV_GROUP
from core.models.slicing.probe import ModelProbe
from core.models.slicing.quirks import wrong_in_batches
from core.settings import KV_BITS

_LENGTHS: Final = (3, 5)
# an unusual number of heads, so that a wrong mask shape doesn't fit by chance
_ROWS: Final = 13


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
    caches: list[Any] = make_prompt_cache(model)
    model(mx.zeros((1, _LENGTHS[0]), mx.int32), cache=caches)
    plain = [cache for cache in caches if hasattr(cache, "to_quantized")]
    for cache in plain:
        try:
            cache.to_quantized(group_size=KV_GROUP, bits=KV_BITS[0])
        except NotImplementedError:
            return f"mlx-lm cannot quantise its caches ({type(cache).__name__})"
        except ValueError:
            return f"its heads are no multiple of {KV_GROUP} numbers wide"
    return "" if plain else "it keeps no keys and values"


def _dry_run(model: nn.Module) -> None:
    alone = []
    for length in _LENGTHS:
        caches: list[Any] = make_prompt_cache(model)
        model(mx.zeros((1, length), mx.int32), cache=caches)
        alone.append(caches)
    rows = [alone[number % len(alone)] for number in range(_ROWS)]
    merged = [type(parts[0]).merge(list(parts)) for parts in zip(*rows, strict=True)]
    model(mx.zeros((_ROWS, 1), mx.int32), cache=merged)
