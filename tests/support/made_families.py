"""Made models of more families than the product's benches need."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.support.made_configs import FAMILIES, Shape, base, llama, sliding


def _qwen2(shape: Shape) -> dict[str, Any]:
    # the family has no head_dim of its own: heads share the hidden size
    return {k: v for k, v in base("qwen2", shape).items() if k != "head_dim"}


def _qwen3_moe(shape: Shape) -> dict[str, Any]:
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": max(32, shape.intermediate // 2)}
    return base("qwen3_moe", shape, decoder_sparse_step=1, mlp_only_layers=[], norm_topk_prob=True, **experts)


def _gpt_oss(shape: Shape) -> dict[str, Any]:
    return base("gpt_oss", shape, num_local_experts=4, num_experts_per_tok=2, **sliding(shape, 2))


def _gemma3(shape: Shape) -> dict[str, Any]:
    local = {"sliding_window": 8, "sliding_window_pattern": 4, "rope_local_base_freq": 10_000.0}
    return base("gemma3_text", shape, query_pre_attn_scalar=shape.head_dim, **local)


def _gemma4(shape: Shape) -> dict[str, Any]:
    plain = {"hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0, "enable_moe_block": False}
    local = {"sliding_window_pattern": 4, "global_head_dim": shape.head_dim, **sliding(shape)}
    return base("gemma4_text", shape, final_logit_softcapping=30.0, **plain, **local)


def _mistral3(shape: Shape) -> dict[str, Any]:
    text = {**base("mistral", shape, attention_bias=False, mlp_bias=False), **sliding(shape)}
    return {"model_type": "mistral3", "text_config": text, "vocab_size": shape.vocab}


def _deepseek_v3(shape: Shape) -> dict[str, Any]:
    latent = {"kv_lora_rank": 32, "q_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 32, "v_head_dim": 32}
    experts = {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_layer_freq": 1}
    router = {"n_group": 1, "topk_group": 1, "topk_method": "noaux_tc", "scoring_func": "sigmoid"}
    more = {"moe_intermediate_size": max(32, shape.intermediate // 2), "first_k_dense_replace": 1}
    scale = {"norm_topk_prob": True, "routed_scaling_factor": 1.0, "attention_bias": False}
    return base("deepseek_v3", shape, **latent, **experts, **router, **more, **scale)


FAMILIES.update(
    llama_tied=lambda shape: {**llama(shape), "tie_word_embeddings": True},
    qwen2=_qwen2,
    qwen3=lambda shape: base("qwen3", shape),
    qwen3_moe=_qwen3_moe,
    gpt_oss=_gpt_oss,
    gemma3_text=_gemma3,
    gemma4_text=_gemma4,
    mistral3=_mistral3,
    deepseek_v3=_deepseek_v3,
)

# these compute or cache in different ways; the others are made in `make nightly`
DIFFERENT: Final = ("llama", "llama_tied", "qwen3_moe", "gpt_oss", "gemma3_text", "deepseek_v3")
MADE: Final = [pytest.param(family, marks=[pytest.mark.nightly] * (family not in DIFFERENT)) for family in FAMILIES]
