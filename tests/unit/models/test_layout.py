"""Bytes of weights and caches, known from headers and config, equal the bytes of files and of real caches."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from inspect import signature
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import mlx_lm.utils as mlx_utils
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache

from core.errors import BadModel
from core.models.files.layout import layout_of, read_layout
from core.models.files.safetensors import Tensor, read_tensors
from core.models.made.made_configs import FAMILIES
from core.models.made.maker import make_model
from core.settings import PREFILL_CHUNK
from tests.support import atlas


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


def test_a_token_needs_all_but_the_experts_that_it_does_not_pass(made: Path) -> None:
    """Each of these families passes two of its four."""
    layout = read_layout(made)
    experts = sum(t.nbytes for n, t in read_tensors(made).items() if ".switch_mlp." in n or ".experts." in n)
    assert sum(layout.layer_bytes) - sum(layout.token_bytes) == experts // 2
    ends = layout.output_bytes + layout.tied * layout.embed_bytes
    assert layout.read_bytes(0, 5, output=True) == sum(layout.token_bytes) + ends
    assert layout.read_bytes(1, 3, output=False) == sum(layout.token_bytes[1:3])


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


def real_model(variant: str) -> tuple[dict[str, Any], Any]:
    """The settings that a family reads of its tiny configuration, and its model."""
    config = atlas.config_of(variant)
    model_class, args_class = mlx_utils._get_classes(config)
    known = {"attn_config", "model_type", *signature(args_class).parameters}
    # a setting that the family does not know would not stand in its config.json
    config = {k: v for k, v in config.items() if k in known} if "text_config" not in config else config
    return deepcopy(config), model_class(args_class.from_dict(config))


def leaves(cache: Any) -> Iterator[Any]:
    for inner in getattr(cache, "caches", ()):
        yield from leaves(inner)
    if not hasattr(cache, "caches"):
        yield cache


def held(model: Any, tokens: int) -> tuple[int, int]:
    """Bytes that the caches hold after a prompt: of those that grow for ever, and of those that do not."""
    caches = make_prompt_cache(model)
    model(mx.zeros((1, tokens), mx.int32), cache=caches)
    ever, capped = 0, 0
    for cache in (leaf for c in caches for leaf in leaves(c)):
        if getattr(cache, "keys", None) is None:
            ever += sum(a.nbytes for a in getattr(cache, "state", ()) if isinstance(a, mx.array))
            continue
        # buffers are longer than what they hold
        size = sum(a.nbytes * min(cache.offset, a.shape[2]) // a.shape[2] for a in (cache.keys, cache.values))
        if hasattr(cache, "max_size") or hasattr(cache, "chunk_size"):
            capped += size
        else:
            ever += size
    return ever, capped


@pytest.mark.slow
@pytest.mark.parametrize("variant", atlas.RUNNING)
def test_every_family_has_its_layers_its_bytes_and_its_caches(variant: str) -> None:
    config, model = real_model(variant)
    weights = dict(tree_flatten(model.parameters()))
    found = {n: Tensor(dtype="F32", shape=tuple(a.shape), nbytes=a.nbytes) for n, a in weights.items()}
    layout = layout_of({**config, "dtype": "float32"}, found, variant)
    assert layout.layers == len(model.layers) == atlas.LAYERS
    assert all(layout.layer_bytes)
    assert layout.total_bytes == sum(a.nbytes for a in weights.values())
    (ever, capped), (ever_later, capped_later) = held(model, 64), held(model, 128)
    rates = list(zip(layout.kv_bytes_per_token, layout.kv_caps, strict=True))
    if variant == "iquestloopcoder":  # its second loop keeps a window; it is counted as if it kept all
        assert (ever_later - ever, capped_later - capped) == (64 * sum(rate for rate, _ in rates) / 2,) * 2
        return
    assert ever_later - ever == 64 * sum(rate for rate, cap in rates if not cap)
    assert capped_later - capped == 64 * sum(rate for rate, cap in rates if cap)


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


def test_the_names_that_families_give_their_sizes_are_known() -> None:
    def first(names: str, **config: Any) -> int:
        return layout_of(config, tensors(f"{names}.0.w"), "x").kv_bytes_per_token[0]

    assert first("h", model_type="gpt2", n_layer=1, n_embd=64, n_head=4) == 2 * 64 * 2
    assert first("h", model_type="gpt_bigcode", n_layer=1, n_embd=64, n_head=4) == 2 * 16 * 2
    attention = {"kv_n_heads": 2, "clip_qkv": 8}
    assert first("blocks", model_type="dbrx", d_model=64, n_heads=4, n_layers=1, attn_config=attention) == 128
    assert kv({"model_type": "plamo2"}, 4)[0] == (0, 128, 0, 128)
    blocks = [{"attention": {"n_heads_in_group": 2}}, {"attention": {"no_op": True}}]
    assert kv({"model_type": "nemotron-nas", "block_configs": blocks}, 2)[0] == (128, 0)


def test_layers_that_reuse_keys_come_behind_the_others() -> None:
    found = tensors("model.layers.0.w", "model.layers.1.w", "model.kv_reuse_layers.0.w", "model.embed.w")
    afm7 = {"model_type": "afm7", "num_layers": 3, "num_kv_reuse_layers": 1}
    layout = layout_of(BASE | afm7, found, "x")
    assert (layout.layer_bytes, layout.embed_bytes) == ((1, 2, 3), 4)
    assert layout.kv_bytes_per_token == (128, 128, 0)


def test_weights_of_8_bit_floats_are_counted_as_what_they_become() -> None:
    found = {"model.layers.0.w": Tensor(dtype="F8_E4M3", shape=(8,), nbytes=8)}
    for settings, size in [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 16),
        ({"quant_method": "fp8", "weight_block_size": [32, 32], "scale_fmt": "ue8m0"}, 8),
        ({"quant_method": "mxfp8"}, 8),
    ]:
        assert layout_of(BASE | {"quantization_config": settings}, found, "x").layer_bytes == (size,)
