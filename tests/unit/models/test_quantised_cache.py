"""Quantised caches on a split model equal those of mlx-lm's `kv_bits` on the whole one; they hold one row each."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx_lm.generate import maybe_quantize_kv_cache
from mlx_lm.models.cache import make_prompt_cache

from core.errors import UnsupportedModel
from core.models.made.maker import random_model
from core.models.slicing.caches import KV_GROUP
from core.models.slicing.probe import ModelProbe
from core.models.slicing.slots import Slice
from tests.support.atlas import config_of

pytestmark = pytest.mark.slow

WIDE = {"hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": KV_GROUP}
CONFIGS = {
    "dense": {**config_of("qwen3"), **WIDE},
    "hybrid": {**config_of("qwen3_next"), "head_dim": KV_GROUP},
}
CHUNKS = (11, 40)
STEPS = 16


def build(config: dict[str, Any]) -> nn.Module:
    return random_model(config, 3, mx.float32)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("name", CONFIGS)
def test_stages_equal_the_whole(name: str, bits: int) -> None:
    model: Any = build(CONFIGS[name])
    caches = make_prompt_cache(model)
    stages = []
    for start, stop in ((0, 3), (3, 8)):
        part = build(CONFIGS[name])
        stages.append(Slice(part, ModelProbe(part), start, stop, embed=start == 0, output=start == 0))
    lists = [stage.caches.new() for stage in stages]
    rng = np.random.default_rng(1)
    position, token, seen = 0, 1, []
    for length in (*CHUNKS, *(1 for _ in range(STEPS))):
        inputs = mx.array(rng.integers(1, 200, (1, length)) if length > 1 else np.array([[token]]))
        expected = model(inputs, cache=caches)[:, -1]
        maybe_quantize_kv_cache(caches, 0, KV_GROUP, bits)
        boundary: list[mx.array] = []
        for number, stage in enumerate(stages):
            now = lists[number]
            boundary = stage.run(boundary, now, position) if boundary else stage.embed(inputs, now, position)
            lists[number] = stage.caches.quantise(now, bits)
        position += length
        logits = stages[0].output(boundary, lists[0], position)
        np.testing.assert_allclose(np.array(logits), np.array(expected), rtol=0, atol=1e-5)
        token = int(expected.argmax().item())
        seen.append(token)
    assert len(set(seen)) > STEPS // 2
    assert any(
        hasattr(cache, "bits") for stage, now in zip(stages, lists, strict=True) for cache in stage.caches.own(now)
    )


def test_a_rotating_cache_is_refused_with_the_cure() -> None:
    model = build(config_of("gpt_oss"))
    stage = Slice(model, ModelProbe(model), 0, 4, embed=True, output=True)
    with pytest.raises(UnsupportedModel, match="8 bits") as caught:
        stage.caches.quantise(stage.caches.new(), 8)
    assert "--kv-bits" in caught.value.fix
