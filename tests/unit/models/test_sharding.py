"""The divisible parts of a model, known from config.json, equal the parts that mlx-lm divides over ranks."""

from __future__ import annotations

from typing import Any, cast

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from core.models.files.layout import layout_of
from core.models.files.safetensors import Tensor
from core.models.files.sharding import Sharding, sharding_of
from tests.support import atlas
from tests.support.made import build


class HalfOfTwo:
    """The part of a group that dividing needs."""

    def size(self) -> int:
        return 2

    def rank(self) -> int:
        return 0


def by_layer(weights: dict[str, mx.array]) -> int:
    return sum(array.nbytes for name, array in weights.items() if ".layers." in name or name.startswith("layers."))


@pytest.mark.parametrize(
    ("variant", "bits"),
    [("llama", 4), ("qwen3", None), ("qwen3_moe", None), ("gpt_oss", None), ("deepseek_v3", None)],
)
def test_a_rank_has_about_the_bytes_that_mlx_lm_leaves_it(variant: str, bits: int | None) -> None:
    model: Any = build(variant, bits=bits)
    weights = cast(dict[str, mx.array], dict(tree_flatten(model.parameters())))
    found = {n: Tensor(dtype="F32", shape=tuple(a.shape), nbytes=a.nbytes) for n, a in weights.items()}
    layout = layout_of({**atlas.config_of(variant), "dtype": "float32"}, found, variant)
    assert layout.sharding.has_variant
    assert layout.sharding.indivisible(2) == ""
    planned = layout.sharding.weights_on(2, by_layer(weights))
    model.shard(HalfOfTwo())
    kept = by_layer(cast(dict[str, mx.array], dict(tree_flatten(model.parameters()))))
    assert kept * 0.97 <= planned <= kept * 1.1


@pytest.mark.parametrize(
    ("config", "ranks", "said"),
    [
        ({}, 2, ""),
        ({}, 4, "8 heads and 2 KV heads do not divide by 4"),
        ({"num_key_value_heads": 8}, 4, ""),
        ({"num_key_value_heads": 8, "intermediate_size": 258}, 4, "258 numbers of the intermediate do not divide by 4"),
        ({"quantization": {"group_size": 64, "bits": 4}}, 2, ""),
        (
            {"quantization": {"group_size": 128, "bits": 4}},
            2,
            "1 groups of 128 numbers of the heads do not divide by 2",
        ),
        (
            {
                "quantization": {"group_size": 32, "bits": 4, "model.layers.0.mlp.down_proj": {"group_size": 256}},
                "head_dim": 64,
            },
            2,
            "1 groups of 256 numbers of the intermediate",
        ),
        (
            {
                "quantization": {
                    "group_size": 64,
                    "model.embed_tokens": {"group_size": 128},
                    "lm_head": {"group_size": 128},
                    "model.layers.0.mlp.gate": {"group_size": 128},
                },
            },
            2,
            "",
        ),
        ({"kv_lora_rank": 8, "v_head_dim": 16, "num_key_value_heads": 1}, 8, ""),
        ({"model_type": "qwen3_5", "vocab_size": 211}, 2, "211 words do not divide by 2"),
        ({"model_type": "qwen3_5", "vocab_size": 211, "tie_word_embeddings": True}, 2, ""),
        ({"linear_num_value_heads": 6, "num_key_value_heads": 8}, 4, "6 linear_num_value_heads do not divide by 4"),
    ],
)
def test_what_does_not_divide_is_named(config: dict[str, Any], ranks: int, said: str) -> None:
    base = {"num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 128, "intermediate_size": 256}
    found = sharding_of({"model_type": "llama"} | base | config, 4, 0).indivisible(ranks)
    assert found.startswith(said) if said else found == ""


def test_another_name_of_a_family_and_one_inside_another_can_be_divided() -> None:
    for model_type, able in (("mistral", True), ("mistral3", True), ("kimi_k2", True), ("gemma3", False), ("", False)):
        assert sharding_of({"model_type": model_type}, 1, 0).has_variant == able
    assert (Sharding().has_variant, Sharding().indivisible(2)) == (False, "1 heads and 1 KV heads do not divide by 2")
