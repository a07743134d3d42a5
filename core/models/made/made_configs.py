"""Tiny config.json contents for made models, one per family of mlx-lm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from core.events import Value

_EPS: Final = 1e-5
_THETA: Final = 10_000.0
WINDOW: Final = 8


class Shape(Value, frozen=True, kw_only=True):
    """Sizes of a made model. `hidden` must be a multiple of 32 for quantisation."""

    layers: int
    hidden: int
    intermediate: int
    vocab: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int


def config_of(family: str, shape: Shape) -> dict[str, Any]:
    """The config.json of a family in this shape; KeyError for a family that isn't in FAMILIES."""
    return FAMILIES[family](shape)


def _base(model_type: str, shape: Shape, **more: Any) -> dict[str, Any]:
    return {
        "model_type": model_type,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": shape.context,
        "rms_norm_eps": _EPS,
        "rope_theta": _THETA,
        "vocab_size": shape.vocab,
        "tie_word_embeddings": False,
        **more,
    }


def _sliding(shape: Shape, period: int = 4) -> dict[str, Any]:
    """Full attention in every `period`-th layer, in the others a window shorter than even a short prompt."""
    kinds = ["full_attention" if (i + 1) % period == 0 else "sliding_attention" for i in range(shape.layers)]
    if "full_attention" not in kinds:
        kinds[-1] = "full_attention"
    return {"layer_types": kinds, "sliding_window": WINDOW}


def _llama(shape: Shape) -> dict[str, Any]:
    return _base("llama", shape, attention_bias=False, mlp_bias=False)


def _qwen2(shape: Shape) -> dict[str, Any]:
    # the family has no head_dim of its own: heads share the hidden size
    return {k: v for k, v in _base("qwen2", shape).items() if k != "head_dim"}


def _qwen3_moe(shape: Shape) -> dict[str, Any]:
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": max(32, shape.intermediate // 2)}
    return _base("qwen3_moe", shape, decoder_sparse_step=1, mlp_only_layers=[], norm_topk_prob=True, **experts)


def _gpt_oss(shape: Shape) -> dict[str, Any]:
    return _base("gpt_oss", shape, num_local_experts=4, num_experts_per_tok=2, **_sliding(shape, 2))


def _gemma3(shape: Shape) -> dict[str, Any]:
    local = {"sliding_window": WINDOW, "sliding_window_pattern": 4, "rope_local_base_freq": _THETA}
    return _base("gemma3_text", shape, query_pre_attn_scalar=shape.head_dim, **local)


def _gemma4(shape: Shape) -> dict[str, Any]:
    plain = {"hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0, "enable_moe_block": False}
    local = {"sliding_window_pattern": 4, "global_head_dim": shape.head_dim, **_sliding(shape)}
    return _base("gemma4_text", shape, final_logit_softcapping=30.0, **plain, **local)


def _mistral3(shape: Shape) -> dict[str, Any]:
    text = {**_base("mistral", shape, attention_bias=False, mlp_bias=False), **_sliding(shape)}
    return {"model_type": "mistral3", "text_config": text, "vocab_size": shape.vocab}


def _deepseek_v3(shape: Shape) -> dict[str, Any]:
    latent = {"kv_lora_rank": 32, "q_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 32, "v_head_dim": 32}
    experts = {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_layer_freq": 1}
    router = {"n_group": 1, "topk_group": 1, "topk_method": "noaux_tc", "scoring_func": "sigmoid"}
    more = {"moe_intermediate_size": max(32, shape.intermediate // 2), "first_k_dense_replace": 1}
    scale = {"norm_topk_prob": True, "routed_scaling_factor": 1.0, "attention_bias": False}
    return _base("deepseek_v3", shape, **latent, **experts, **router, **more, **scale)


FAMILIES: Final[dict[str, Callable[[Shape], dict[str, Any]]]] = {
    "llama": _llama,
    "llama_sliding": lambda shape: {**_llama(shape), **_sliding(shape)},
    "llama_tied": lambda shape: {**_llama(shape), "tie_word_embeddings": True},
    "qwen2": _qwen2,
    "qwen3": lambda shape: _base("qwen3", shape),
    "qwen3_moe": _qwen3_moe,
    "gpt_oss": _gpt_oss,
    "gemma3_text": _gemma3,
    "gemma4_text": _gemma4,
    "mistral3": _mistral3,
    "deepseek_v3": _deepseek_v3,
}
