"""The examined sizes of a model's caches equal those of real caches; the rough rule gives the usual size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import mlx.core as mx
import mlx_lm
import pytest
from mlx_lm.generate import maybe_quantize_kv_cache
from mlx_lm.models.cache import make_prompt_cache

from core.models.files.cache_size import CacheSize, rough_size
from core.models.files.model_folder import read_folder
from core.models.made.maker import random_model
from core.models.slicing.examine import examine
from core.models.slicing.measured_caches import cache_sizes, whole_bits
from core.models.slicing.probe import ModelProbe
from core.settings import KV_BITS, PREFILL_CHUNK
from tests.support.atlas import KINDS, config_of, nightly_unless
from tests.support.made import build
from tests.support.made_families import MADE
from tests.support.maker import make_model

pytestmark = pytest.mark.slow

LENGTHS: Final = (64, 128)


@pytest.mark.parametrize("family", MADE)
def test_what_an_examination_says_is_what_evaluated_caches_take(family: str, tmp_path: Path) -> None:
    make_model(tmp_path, family, layers=5)
    sizes = examine(read_folder(tmp_path)).caches
    model: Any = mlx_lm.load(str(tmp_path))[0]
    caches = make_prompt_cache(model)
    # a multiple of the step in which caches grow
    mx.eval(model(mx.zeros((1, 256), mx.int32), cache=caches), [c.state for c in caches])
    assert [size.bytes_for(256) for size in sizes] == [cache.nbytes for cache in caches]
    assert [bool(size.window) for size in sizes] == [hasattr(cache, "max_size") for cache in caches]


def parts(cache: Any) -> Iterator[Any]:
    for inner in getattr(cache, "caches", (cache,)):
        yield from [inner] if inner is cache else parts(inner)


def held(caches: list[Any]) -> int:
    """Bytes of the caches' content; the buffers of keys and values are longer."""
    found = 0
    for part in (part for cache in caches for part in parts(cache) if not part.empty()):
        keys = getattr(part, "keys", None)
        buffer = (keys[0] if isinstance(keys, list | tuple) else keys).shape[2] if keys is not None else 1
        found += part.nbytes * min(part.offset, buffer) // buffer if keys is not None else part.nbytes
    return found


@pytest.mark.parametrize("variant", nightly_unless(KINDS))
def test_every_family_keeps_what_was_measured(variant: str) -> None:
    model: Any = build(variant)
    sizes = cache_sizes(model, ModelProbe(model), ())
    assert len(sizes) == len(model.layers)
    for tokens in LENGTHS:
        assert sum(size.bytes_for(tokens) for size in sizes) == held(filled(model, tokens))


def filled(model: Any, tokens: int) -> list[Any]:
    caches: list[Any] = make_prompt_cache(model)
    model(mx.zeros((1, tokens), mx.int32), cache=caches)
    return caches


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
@pytest.mark.parametrize("variant", ["llama", "qwen3_next"])  # one keeps states, too
def test_fewer_bits_are_measured(variant: str, dtype: mx.Dtype) -> None:
    model: Any = random_model({**config_of(variant), "head_dim": 64}, 0, dtype)
    assert whole_bits(model) == ""
    sizes = cache_sizes(model, ModelProbe(model), KV_BITS)
    for bits in KV_BITS:
        caches = filled(model, 64)
        maybe_quantize_kv_cache(caches, 0, 64, bits)
        assert sum(size.bytes_for(64, bits) for size in sizes) == held(caches)


def test_why_caches_stay_whole_is_said_in_words() -> None:
    model: Any = random_model({**config_of("llama"), "head_dim": 32}, 0, mx.float32)
    assert whole_bits(model) == "its heads are no multiple of 64 numbers wide"


def test_a_window_stops_growing_and_a_state_never_grows() -> None:
    size = CacheSize(fixed_bytes=7, bytes_per_token=10, window_bytes_per_token=100, window=8 + PREFILL_CHUNK)
    assert size.bytes_for(100) == 7 + 100 * 110
    assert size.bytes_for(100_000) == 7 + 100_000 * 10 + (8 + PREFILL_CHUNK) * 100


def test_fewer_bits_are_what_was_measured_or_with_a_scale_and_a_bias_for_every_64_numbers() -> None:
    assert CacheSize(bytes_per_token=128, quantised={4: 40}).bytes_for(2, 4) == 80
    assert CacheSize(fixed_bytes=7, bytes_per_token=128).bytes_for(2, 4) == 7 + 2 * 36


@pytest.mark.parametrize(
    ("config", "a_token"),
    [
        ({"num_attention_heads": 4, "hidden_size": 64, "num_key_value_heads": 2}, 2 * 2 * 16 * 2),
        ({"num_attention_heads": 4, "hidden_size": 64, "num_key_value_heads": 2, "dtype": "float32"}, 2 * 2 * 16 * 4),
        ({"num_attention_heads": 4, "hidden_size": 64, "head_dim": 32}, 2 * 4 * 32 * 2),
        ({"n_embd": 64, "n_head": 4}, 2 * 64 * 2),
        ({"kv_lora_rank": 512, "qk_rope_head_dim": 64, "num_attention_heads": 128}, 576 * 2),
        ({"num_kv_heads": [1, 4], "head_dim": 8}, 2 * 4 * 8 * 2),
        ({"num_key_value_heads": None}, 0),
    ],
)
def test_a_rough_size_needs_a_config_only(config: dict[str, Any], a_token: int) -> None:
    assert rough_size(config) == CacheSize(bytes_per_token=a_token)
