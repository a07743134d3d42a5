"""Bytes of weights and caches, known from headers and config, equal the bytes of files and of real caches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import pytest
from mlx_lm.models.cache import make_prompt_cache

from core.errors import BadModel
from core.models.families import FAMILIES
from core.models.headers import Tensor, read_tensors
from core.models.layout import layout_of, read_layout
from core.models.maker import make_model
from core.settings import PREFILL_CHUNK


@pytest.fixture(scope="module", params=FAMILIES)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model")
    make_model(directory, request.param, layers=5)
    return directory


def test_layout_bytes_equal_file_bytes(made: Path) -> None:
    layout = read_layout(made)
    assert layout.layers == len(layout.layer_bytes) == 5
    assert layout.total_bytes == sum(t.nbytes for t in read_tensors(made).values())
    halves = [layout.stage_bytes(0, 2, embed=True, output=False), layout.stage_bytes(2, 5, embed=False, output=True)]
    assert sum(halves) == layout.total_bytes + (layout.embed_bytes if layout.tied else 0)


def test_kv_bytes_equal_the_bytes_of_real_caches(made: Path) -> None:
    layout = read_layout(made)
    model: Any = mlx_lm.load(str(made))[0]
    caches = make_prompt_cache(model)
    # a multiple of the step in which caches grow
    mx.eval(model(mx.zeros((1, 256), mx.int32), cache=caches), [c.state for c in caches])
    for layer, cache in enumerate(caches):
        held = cache.keys.nbytes + cache.values.nbytes
        assert layout.kv_bytes(layer, layer + 1, 256) == held
        assert bool(layout.kv_caps[layer]) == hasattr(cache, "max_size")


def tensors(*names: str) -> dict[str, Tensor]:
    return {name: Tensor(dtype="U8", shape=(size,), nbytes=size) for size, name in enumerate(names, 1)}


BASE: dict[str, Any] = {"model_type": "llama", "num_attention_heads": 4, "hidden_size": 64, "num_key_value_heads": 2}


def test_parts_that_are_not_loaded_weigh_nothing() -> None:
    found = tensors(
        "model.embed_tokens.weight",
        "model.layers.0.mlp.weight",
        "model.layers.1.mlp.weight",
        "model.layers.2.mtp_head.weight",
        "vision_tower.blocks.0.weight",
        "multi_modal_projector.weight",
        "model.norm.weight",
        "lm_head.weight",
    )
    layout = layout_of(BASE | {"num_hidden_layers": 2}, found, "x")
    assert (layout.embed_bytes, layout.layer_bytes, layout.output_bytes, layout.tied) == (1, (2, 3), 15, False)


def test_a_tied_head_brings_its_copy_of_the_embedding() -> None:
    layout = layout_of(BASE, tensors("transformer.wte.weight", "transformer.h.0.w", "transformer.ln_f.weight"), "x")
    assert layout.tied
    assert layout.stage_bytes(0, 1, embed=True, output=True) == 6
    assert layout.stage_bytes(0, 1, embed=False, output=True) == 6
    assert layout.stage_bytes(0, 1, embed=False, output=False) == 2


def kv(config: dict[str, Any], layers: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    names = [f"model.layers.{i}.w" for i in range(layers)]
    layout = layout_of(BASE | {"num_hidden_layers": layers} | config, tensors(*names), "x")
    return layout.kv_bytes_per_token, layout.kv_caps


def test_kv_of_families_that_keep_less() -> None:
    plain = 2 * 2 * 16 * 2
    assert kv({}, 2) == ((plain, plain), (0, 0))
    assert kv({"dtype": "float32"}, 1) == ((2 * plain,), (0,))
    assert kv({"model_type": "mamba2"}, 1) == ((0,), (0,))
    hybrid = {"model_type": "qwen3_next", "full_attention_interval": 2}
    assert kv(hybrid, 2)[0] == (0, plain)
    assert kv({"model_type": "nemotron_h", "hybrid_override_pattern": "M*-"}, 3)[0] == (0, plain, 0)
    latent = {"model_type": "deepseek_v3", "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    assert kv(latent, 1)[0] == (2 * 576,)
    gemma = {"model_type": "gemma3_text", "sliding_window": 100, "sliding_window_pattern": 2}
    assert kv(gemma, 2)[1] == (100 + PREFILL_CHUNK, 0)
    # mlx-lm keeps every token here, whatever the config says
    assert kv({"model_type": "qwen3", "layer_types": ["sliding_attention"], "sliding_window": 8}, 1)[1] == (0,)
    assert kv({"num_kv_shared_layers": 1}, 2)[0] == (plain, 0)


def test_a_sliding_layer_stops_growing() -> None:
    layout = layout_of(
        BASE | {"num_hidden_layers": 1, "layer_types": ["sliding_attention"], "sliding_window": 8},
        tensors("model.layers.0.w"),
        "x",
    )
    assert layout.kv_bytes(0, 1, 100) == 100 * 128
    assert layout.kv_bytes(0, 1, 100_000) == (8 + PREFILL_CHUNK) * 128


def test_a_model_without_layers_is_refused() -> None:
    with pytest.raises(BadModel, match="no layers"):
        layout_of(BASE, tensors("model.norm.weight"), "x")
