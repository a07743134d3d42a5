"""Every architecture of mlx-lm as one or more tiny configurations; a variant's first word is its module.

The base has the fields that most families need, under all their names; a family's ModelArgs take the ones they know.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from copy import deepcopy
from typing import Any, Final

import pytest

LAYERS: Final = 8
WINDOW: Final = 8
VOCAB: Final = 211  # a prime, unlike any head count or width

Config = dict[str, Any]

_ROPE: Final[Config] = {"rope_theta": 1e4, "type": "default", "rope_type": "default"}
_EPS: Final = dict.fromkeys(
    ("rms_norm_eps", "layer_norm_eps", "norm_eps", "layer_norm_epsilon", "layernorm_epsilon", "norm_epsilon",
     "mixer_rms_eps", "post_norm_eps"),
    1e-5,
)  # fmt: skip
_SIZES: Final[Config] = {
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layer", "n_layers"), LAYERS),
    **dict.fromkeys(("hidden_size", "n_embd"), 96),
    **dict.fromkeys(("num_attention_heads", "num_heads", "n_head", "n_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "n_kv_heads"), 2),
    **dict.fromkeys(("vocab_size", "num_vocab", "vocab_size_per_layer_input"), VOCAB),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "block_size", "model_max_length"), 512),
    **dict.fromkeys(("intermediate_size", "ffn_hidden_size", "n_inner"), 64),
}
_FLAGS: Final = ("tie_word_embeddings", "attention_bias", "mlp_bias", "use_bias", "use_qkv_bias", "bias", "conv_bias")
BASE: Final[Config] = {
    **_SIZES, **_EPS, **dict.fromkeys(_FLAGS, False), "rope_theta": 1e4, "hidden_act": "silu", "use_qk_norm": True,
    "rope_local_base_freq": 1e4,
}  # fmt: skip

HEADS: Final[Config] = {"head_dim": 32}
EXPERTS: Final[Config] = {
    **dict.fromkeys(("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "moe_top_k"), 2),
    **dict.fromkeys(("moe_intermediate_size", "moe_shared_expert_intermediate_size", "share_expert_dim"), 64),
    **dict.fromkeys(("shared_expert_intermediate_size", "shared_intermediate_size", "expert_ffn_hidden_size"), 64),
    **dict.fromkeys(("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts"), 1),
    **dict.fromkeys(("n_group", "topk_group", "num_expert_group", "first_k_dense_replace", "num_dense_layers"), 1),
    "norm_topk_prob": True, "routed_scaling_factor": 1.0, "moe_layer_freq": 1, "decoder_sparse_step": 1,
    "mlp_only_layers": [], "scoring_func": "sigmoid", "topk_method": "noaux_tc", "top_k_experts": 2,
}  # fmt: skip
LATENT: Final[Config] = {
    "kv_lora_rank": 32, "q_lora_rank": 64, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 32,
    "num_key_value_heads": 4,
}  # fmt: skip
MAMBA: Final[Config] = {
    **dict.fromkeys(("mamba_n_heads", "mamba_num_heads", "num_heads"), 6),
    **dict.fromkeys(("mamba_d_head", "mamba_head_dim", "head_dim"), 16),
    **dict.fromkeys(("mamba_d_state", "state_size", "ssm_state_size"), 16),
    **dict.fromkeys(("mamba_d_conv", "conv_kernel"), 4),
    **dict.fromkeys(("mamba_n_groups", "n_groups"), 1),
    **dict.fromkeys(("mamba_conv_bias", "use_conv_bias"), True),
    "mamba_proj_bias": False, "mamba_d_ssm": 96, "mamba_expand": 2, "time_step_rank": 8,
    "time_step_limit": [0.001, 100.0],
}  # fmt: skip
DELTA: Final[Config] = {
    **HEADS, "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 32,
    "linear_value_head_dim": 32, "linear_conv_kernel_dim": 4, "full_attention_interval": 4,
    "linear_allow_neg_eigval": False, "partial_rotary_factor": 0.5,
}  # fmt: skip
INDEXER: Final[Config] = {"index_head_dim": 32, "index_n_heads": 2, "index_topk": 4}
LOCAL: Final[Config] = {
    **HEADS, "sliding_window": WINDOW, "sliding_window_pattern": 4,
    "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 2,
}  # fmt: skip
_BY_KIND: Final = {"full_attention": _ROPE | {"partial_rotary_factor": 0.5}, "sliding_attention": _ROPE}
GRANITE: Final[Config] = {
    "logits_scaling": 2.0, "attention_multiplier": 0.2, "embedding_multiplier": 1.7, "residual_multiplier": 0.5,
}  # fmt: skip
YARN: Final[Config] = {
    "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 1.0, "mscale_all_dim": 1.0,
    "beta_fast": 32, "beta_slow": 1,
}  # fmt: skip
SCALED_QUERIES: Final[Config] = {
    "rope_parameters": {**_ROPE, "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 8}
}
KDA: Final[Config] = {
    "linear_attn_config": {
        "full_attn_layers": [4, 8], "kda_layers": [1, 2, 3, 5, 6, 7], "head_dim": 32, "num_heads": 4,
        "short_conv_kernel_size": 4,
    },
}  # fmt: skip
CONV: Final[Config] = {
    "conv_L_cache": 3, "block_dim": 96, "block_multiple_of": 32, "block_ffn_dim_multiplier": 1.0,
    "block_auto_adjust_ff_dim": False, "use_expert_bias": True, "rope_parameters": _ROPE,
    "layer_types": ["conv", "conv", "full_attention", "conv"] * 2,
}  # fmt: skip
GEMMA4: Final[Config] = {
    **LOCAL, "global_head_dim": 64, "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0,
    "final_logit_softcapping": 30.0, "tie_word_embeddings": True,
}  # fmt: skip
MROPE: Final[Config] = {"rope_parameters": {**_ROPE, "mrope_section": [2, 1, 1], "partial_rotary_factor": 0.25}}
HADAMARD: Final[Config] = {
    "schema_version": 1, "tensor_namespace": "mlx-lm-text",
    "quantization": {"bits": 2, "group_size": 128, "mode": "affine"},
    "modules": [
        {"path": path, "block": block, "embedding": path.endswith("tokens"), "dtype": "float16"}
        for path, block in (
            ("model.embed_tokens", 0), ("lm_head", 0),
            *((f"model.layers.{i}.mlp.down_proj", 512) for i in range(LAYERS)),
        )
    ],
}  # fmt: skip


def text(model_type: str, *parts: Mapping[str, Any]) -> Config:
    """A vision-language wrapper's text tower."""
    return {"text_config": _merge(BASE, *parts, {"model_type": model_type})}


def _merge(*parts: Mapping[str, Any]) -> Config:
    return {key: value for part in parts for key, value in part.items()}


FAMILIES: Final[dict[str, Config]] = {
    "Klear": EXPERTS,
    "afm7": {"hidden_dim": 96, "num_kv_reuse_layers": 3},
    "afmoe": {**LOCAL, **EXPERTS},
    "apertus": {"post_norm": True, "qk_norm": True},
    "baichuan_m1": {
        "conv_window": 2, "sliding_window": WINDOW, "sliding_window_layers": [1, 3, 5], "num_swa_attention_heads": 4,
        "num_swa_key_value_heads": 2,
    },
    "bailing_hybrid": {**LATENT, **EXPERTS, **HEADS, "layer_group_size": 4, "group_norm_size": 2},
    "bailing_moe": {**EXPERTS, "rotary_dim": 16, "partial_rotary_factor": 0.5},
    "bailing_moe_linear": {**EXPERTS, **HEADS, "layer_group_size": 4, "group_norm_size": 2},
    "bailing_moe_v3": {**LATENT, **EXPERTS, **HEADS, "layer_group_size": 4, "short_conv_kernel_size": 4},
    "bitnet": HEADS,
    "cohere": {"logit_scale": 1.0},
    "cohere2": {**LOCAL, "head_dim": 24, "logit_scale": 1.0},
    "dbrx": {
        "d_model": 96, "attn_config": {"clip_qkv": 8, "kv_n_heads": 2, "rope_theta": 1e4},
        "ffn_config": {"ffn_hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "deepseek": EXPERTS,
    "deepseek_v2": {**LATENT, **EXPERTS, "topk_method": "group_limited_greedy", "rope_scaling": YARN},
    "deepseek_v3": {**LATENT, **EXPERTS, "rope_scaling": YARN},
    "deepseek_v3 dense": {**LATENT, **EXPERTS, "n_routed_experts": None},
    "deepseek_v32": {**LATENT, **EXPERTS, **INDEXER},
    "deepseek_v41": {
        **EXPERTS, **INDEXER, "head_dim": 64, "q_lora_rank": 64, "qk_rope_head_dim": 16, "o_groups": 2,
        "o_lora_rank": 32, "sliding_window": WINDOW, "hc_mult": 4, "hc_sinkhorn_iters": 3, "rms_norm_eps": 1e-6,
        "compress_ratios": [0, 0, 4, 4, 4, 4, 4, 4], "kv_source_layer_ids": [2, 4, 6],
        "index_source_layer_ids": [2, 4, 6], "moe_intermediate_size": 64,
    },
    "dots1": {**EXPERTS, "scoring_func": ["noaux_tc"]},
    "ernie4_5": HEADS,
    "ernie4_5_moe": {**EXPERTS, "moe_layer_start_index": 1},
    "exaone": {},
    "exaone4": {**LOCAL, "sliding_window_pattern": "LLLG", "rope_scaling": None},
    "exaone_moe": {**LOCAL, **EXPERTS, "is_moe_layer": [False] + [True] * 7, "rope_parameters": _ROPE},
    "falcon_h1": {**MAMBA, "num_heads": 4, "head_dim": 24},
    "gear": {
        **LOCAL, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "query_pre_attn_scalar": 32,
        "layer_types": ["conv_mixer", "sliding_attention", "conv_mixer", "full_attention"] * 2,
    },
    "gemma": HEADS,
    "gemma2": {**HEADS, "query_pre_attn_scalar": 32},
    "gemma3": {**text("gemma3_text", LOCAL, {"query_pre_attn_scalar": 32})},
    "gemma3_text": {**LOCAL, "query_pre_attn_scalar": 32},
    "gemma3n": text("gemma3n_text", LOCAL, {
        "num_kv_shared_layers": 2, "final_logit_softcapping": 30.0, "activation_sparsity_pattern": [0.5] * 2 + [0] * 6,
        "hidden_size_per_layer_input": 32, "altup_num_inputs": 4, "altup_coef_clip": 120.0,
        "altup_correct_scale": True, "altup_active_idx": 0, "laurel_rank": 16,
    }),
    "gemma4": text("gemma4_text", GEMMA4),
    "gemma4_text": GEMMA4,
    "gemma4_text experts": {**GEMMA4, **EXPERTS, "enable_moe_block": True},
    "gemma4_text inputs per layer": {**GEMMA4, "hidden_size_per_layer_input": 32},
    "gemma4_text shared keys": {**GEMMA4, "num_kv_shared_layers": 4},
    "gemma4_text keys as values": {**GEMMA4, "attention_k_eq_v": True, "num_global_key_value_heads": 1},
    "gemma4_text all": {**GEMMA4, "hidden_size_per_layer_input": 32, "num_kv_shared_layers": 2},
    "glm": HEADS,
    "glm4": {**HEADS, "partial_rotary_factor": 0.5},
    "glm4_moe": {**HEADS, **EXPERTS, "partial_rotary_factor": 0.5, "rope_scaling": None},
    "glm4_moe_lite": {**LATENT, **EXPERTS},
    "glm_moe_dsa": {**LATENT, **EXPERTS, **INDEXER, "rope_parameters": _ROPE},
    "gpt2": {"num_key_value_heads": 4},
    "gpt_bigcode": {"attention_bias": True},
    "gpt_neox": {"rotary_emb_base": 10000, "rotary_pct": 0.5, "num_key_value_heads": 4},
    "gpt_neox serial": {"rotary_emb_base": 10000, "rotary_pct": 0.5, "use_parallel_residual": False},
    "gpt_oss": {**LOCAL, **EXPERTS, "intermediate_size": 64},
    "gptj": {"rotary_dim": 16},
    "granite": GRANITE,
    "granitemoe": {**GRANITE, **EXPERTS},
    "granitemoehybrid": {**GRANITE, **MAMBA, **EXPERTS, "layer_types": ["mamba", "mamba", "attention", "mamba"] * 2},
    "granitemoehybrid dense": {**GRANITE, **MAMBA, "layer_types": ["mamba", "mamba", "attention", "mamba"] * 2},
    "helium": {"head_dim": 24},
    "hunyuan": {
        **EXPERTS, "use_mixed_mlp_moe": True, "use_cla": True, "cla_share_factor": 2,
        "rope_scaling": {"type": "dynamic", "factor": 1.0, "alpha": 1000.0},
    },
    "hunyuan own keys": {
        **EXPERTS, "use_mixed_mlp_moe": True, "use_cla": False, "cla_share_factor": 2,
        "rope_scaling": {"type": "dynamic", "factor": 1.0, "alpha": 1000.0},
    },
    "hunyuan_v1_dense": {"rope_scaling": {"type": "dynamic", "factor": 1.0, "alpha": 1000.0}},
    "internlm2": {},
    "internlm3": {"qkv_bias": True},
    "iquestloopcoder": {**HEADS, "loop_num": 2, "loop_window_size": WINDOW},
    "jamba": {
        **MAMBA, **EXPERTS, "attn_layer_offset": 2, "attn_layer_period": 4, "expert_layer_offset": 1,
        "expert_layer_period": 2,
    },
    "kimi_k25": text("deepseek_v3", LATENT, EXPERTS),
    "kimi_k3": text("kimi_linear", LATENT, EXPERTS, KDA, {
        "hidden_act": "situ", "activation_situ_beta": 4.0, "activation_situ_linear_beta": 25.0,
        "attn_res_block_size": 3, "mla_use_output_gate": True, "routed_expert_hidden_size": 64,
        "latent_moe_use_norm": True,
    }),
    "kimi_linear": {**LATENT, **EXPERTS, **KDA, **HEADS, "q_lora_rank": None},
    "kimi_vl": text("deepseek_v3", LATENT, EXPERTS),
    "laguna": {**LOCAL, **EXPERTS, "rope_parameters": _BY_KIND, "partial_rotary_factor": 0.5},
    "lfm2": CONV,
    "lfm2-vl": text("lfm2", CONV),
    "lfm2_moe": {**CONV, **EXPERTS},
    "lille-130m": {},
    "llama": HEADS,
    "llama sliding": LOCAL,
    "llama tied": {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True},
    "llama4": text("llama4_text", HEADS, EXPERTS, {
        "attention_chunk_size": WINDOW, "floor_scale": 8, "interleave_moe_layer_step": 2, "intermediate_size_mlp": 128,
        "num_experts_per_tok": 1, "rope_scaling": None,
    }),
    "llama4_text": {**HEADS, "intermediate_size_mlp": 128, "no_rope_layers": [1, 1, 1, 0] * 2},
    "longcat_flash": {
        **LATENT, **EXPERTS, "attention_method": "MLA", "zero_expert_type": "identity", "zero_expert_num": 2,
        "mla_scale_q_lora": True, "mla_scale_kv_lora": True,
    },
    "longcat_flash_ngram": {
        **LATENT, **EXPERTS, "zero_expert_num": 2, "mla_scale_q_lora": True, "mla_scale_kv_lora": True,
        "ngram_vocab_size_ratio": 3, "emb_split_num": 2, "emb_neighbor_num": 3,
    },
    "mamba": {**MAMBA, "hidden_size": 96},
    "mamba2": {**MAMBA, "num_heads": 6},
    "mellum": {**LOCAL, **EXPERTS, "rope_parameters": {"full_attention": _ROPE, "sliding_attention": _ROPE}},
    "mimo": {},
    "mimo_v2_flash": {
        **HEADS, **EXPERTS, "hybrid_layer_pattern": [0, 1, 1, 1] * 2, "moe_layer_freq": [0] + [1] * 7,
        "add_swa_attention_sink_bias": True, "add_full_attention_sink_bias": False, "sliding_window_size": WINDOW,
        "swa_head_dim": 32, "swa_v_head_dim": 32, "swa_num_attention_heads": 4, "swa_num_key_value_heads": 2,
        "swa_rope_theta": 1e4, "v_head_dim": 32, "partial_rotary_factor": 0.5,
    },
    "minicpm": {"dim_model_base": 64, "scale_depth": 1.4, "scale_emb": 3.0},
    "minicpm3": {
        **LATENT, "dim_model_base": 64, "scale_depth": 1.4, "scale_emb": 3.0,
        "rope_scaling": {
            "type": "longrope", "original_max_position_embeddings": 512, "long_factor": 1.0, "short_factor": 1.0,
        },
    },
    "minimax": {**HEADS, **EXPERTS, "rotary_dim": 16},
    "minimax_m3_vl": text("minimax_m3", HEADS, EXPERTS, {
        "dense_intermediate_size": 128, "intermediate_size": 64, "moe_layer_freq": [0] + [1] * 7,
        "sparse_attention_freq": [0, 1] * 4, "index_n_heads": 2, "index_head_dim": 32, "index_block_size": 4,
        "index_topk_blocks": 2,
    }),
    "ministral3": {**HEADS, **SCALED_QUERIES},
    "ministral3 sliding": {**LOCAL, **SCALED_QUERIES},
    "mistral3": text("mistral", LOCAL),
    "mistral3 ministral": text("ministral3", LOCAL, SCALED_QUERIES),
    "mistral4": {**LATENT, **EXPERTS, **SCALED_QUERIES},
    "mixtral": EXPERTS,
    "muse_glimmer": {**LOCAL, "final_logit_softcapping": 30.0},
    "muse_spark": text("muse_spark", LOCAL, EXPERTS, {
        "layer_rope_theta": [1e4, 1e4, 1e4, 0] * 2, "final_logit_softcapping": 30.0, "output_multiplier": 1.0,
        "rope_parameters": _ROPE, "moe_hidden_size": 64, "num_shared_experts": 0,
    }),
    "nanbeige looped": {**HEADS, "num_loops": 2},
    "nanbeige one loop": HEADS,
    "nanochat": {},
    "nemotron": {**HEADS, "partial_rotary_factor": 0.5},
    "nemotron-nas": {
        "block_configs": [
            {
                "attention": {"n_heads_in_group": 2, "no_op": i == 2, "replace_with_linear": i == 5},
                "ffn": {"ffn_mult": 1.5, "no_op": i == 6, "replace_with_linear": i == 3},
            }
            for i in range(LAYERS)
        ],
    },
    "nemotron_h": {**MAMBA, "head_dim": 24, "hybrid_override_pattern": "M-M*M-M*"},
    "nemotron_h experts": {
        **MAMBA, **EXPERTS, "head_dim": 24, "hybrid_override_pattern": "MEM*MEM*", "moe_latent_size": 64,
    },
    "olmo": {},
    "olmo2": {},
    "olmo3": LOCAL,
    "olmo_hybrid": {
        **DELTA, "num_key_value_heads": 4, "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 2,
        "rope_parameters": {"rope_theta": 1e4},
    },
    "olmoe": EXPERTS,
    "openelm": {
        **HEADS, "num_transformer_layers": LAYERS, "model_dim": 96, "ffn_dim_divisor": 32, "num_query_heads": [4] * 8,
        "num_kv_heads": [2] * 8, "ffn_multipliers": [1.0] * 8,
    },
    "phi": {"partial_rotary_factor": 0.5, "num_key_value_heads": 4},
    "phi3": {"partial_rotary_factor": 0.5, "original_max_position_embeddings": 512},
    "phi3small": {
        # the head blanks fixed ids of the real vocabulary
        "vocab_size": 100352, "hidden_size": 32, "dense_attention_every_n_layers": 2, "ff_intermediate_size": 64,
        "gegelu_limit": 20.0, "blocksparse_block_size": 32, "blocksparse_num_local_blocks": 1,
    },
    "phimoe": {**EXPERTS, "original_max_position_embeddings": 512},
    "phixtral": {**EXPERTS, "model_dim": 96, "rotary_dim": 16},
    "pixtral": text("llama", LOCAL),
    "plamo": {"n_shared_head": 2},
    "plamo2": {
        **MAMBA, "mamba_num_heads": 8, "hidden_size_per_head": 32, "attention_window_size": WINDOW,
        "full_attention_idx": [3, 7], "mamba_chunk_size": 16,
    },
    "plamo3": {**HEADS, "window_size": WINDOW, "sliding_window_pattern": 4, "rope_local_theta": 1e4},
    "prism_hadamard_qwen35": {
        **text("qwen3_5", DELTA, MROPE, {"hidden_size": 128, "intermediate_size": 512}), **HADAMARD,
    },
    "qwen": {"kv_channels": 24, "no_bias": True},
    "qwen2": {},
    "qwen2_moe": EXPERTS,
    "qwen2_vl": text("qwen2"),
    "qwen3": {**HEADS, "rope_parameters": _ROPE},
    "qwen3_5": text("qwen3_5", DELTA, MROPE),
    "qwen3_5_moe": text("qwen3_5_moe", DELTA, MROPE, EXPERTS),
    "qwen3_moe": {**HEADS, **EXPERTS},
    "qwen3_next": {**DELTA, **EXPERTS},
    "qwen3_vl": text("qwen3", HEADS),
    "qwen3_vl_moe": text("qwen3_moe", HEADS, EXPERTS),
    "recurrent_gemma": {
        "num_key_value_heads": 1, "conv1d_width": 4, "logits_soft_cap": 30.0, "attention_window_size": WINDOW,
        "block_types": ["recurrent", "recurrent", "attention"],
    },
    "rwkv7": {
        **HEADS, "a_low_rank_dim": 32, "decay_low_rank_dim": 32, "gate_low_rank_dim": 32, "v_low_rank_dim": 32,
    },
    "seed_oss": HEADS,
    "smollm3": {**LOCAL, "no_rope_layers": [1, 1, 1, 0] * 2},
    "solar_open": {**HEADS, **EXPERTS, "partial_rotary_factor": 0.5},
    "spark2_5": {**LOCAL, "hidden_act": "gelu", "rope_parameters": _BY_KIND},
    "stablelm": {"partial_rotary_factor": 0.5},
    "stablelm parallel": {"partial_rotary_factor": 0.5, "use_parallel_residual": True, "qk_layernorm": True},
    "starcoder2": {},
    "step3p5": {
        **LOCAL, **EXPERTS, "num_attention_groups": 2, "moe_layers_enum": "1,2,3,4,5,6,7",
        "attention_other_setting": {"num_attention_heads": 4, "num_attention_groups": 1},
        "swiglu_limits": [0, 0, 0, 0, 7.0, 7.0, 7.0, 7.0],
    },
    "talkie": HEADS,
    "telechat3": HEADS,
    "youtu_llm": LATENT,
}  # fmt: skip


# families whose answers from seed 0 do not wander
SEEDS: Final = {
    **dict.fromkeys(("baichuan_m1", "deepseek_v3 dense", "gpt_neox", "gptj", "qwen3_moe", "qwen3_vl_moe"), 1),
    **{"dbrx": 5, "gpt2": 2, "gpt_neox serial": 3, "llama4": 12, "llama4_text": 10, "phi": 5, "phi3small": 5},
    **{"stablelm parallel": 5, "starcoder2": 1},
}


# models that cannot run here, with the error each raises
CANNOT_RUN: Final[dict[str, str]] = {
    "bitnet": "No Metal back-end",  # its linear layer is a Metal kernel
    "muse_spark": "No Metal back-end",  # so are its norms
    "olmo": "1",  # the package ai2-olmo is not installed; mlx-lm's module ends the process with this status
}
RUNNING: Final = [variant for variant in FAMILIES if variant not in CANNOT_RUN]
# `make test` computes with one or two of every kind of cuts and caches, `make nightly` with all families;
# tests/unit/models/test_atlas.py checks that every family is of one of these kinds
KINDS: Final = (
    "llama", "gpt2", "deepseek_v3", "ministral3", "llama sliding", "gpt_oss", "qwen3_next", "kimi_k3", "rwkv7",
    "mamba", "bailing_moe_linear", "nemotron_h", "nemotron-nas", "recurrent_gemma", "gear", "falcon_h1", "baichuan_m1",
    "deepseek_v32", "deepseek_v41", "minimax_m3_vl", "llama4", "hunyuan", "talkie", "gpt_bigcode", "phi3small",
    "gemma3n", "gemma4_text inputs per layer", "gemma4_text shared keys", "gemma4_text all", "afm7",
    "longcat_flash_ngram", "iquestloopcoder", "nanbeige looped",
)  # fmt: skip
# one of every kind of caches that merge, and of arrays that cross a cut
BATCHED_KINDS: Final = (
    "llama", "llama sliding", "qwen3_next", "mamba", "recurrent_gemma", "gear", "falcon_h1", "baichuan_m1",
    "deepseek_v32", "longcat_flash_ngram", "hunyuan", "talkie", "gemma4_text inputs per layer",
)  # fmt: skip


def nightly_unless(kinds: Container[str]) -> list[Any]:
    """Every variant that runs, as a parameter; those outside `kinds` run in `make nightly`."""
    return [pytest.param(variant, marks=[pytest.mark.nightly] * (variant not in kinds)) for variant in RUNNING]


def config_of(variant: str) -> Config:
    """A copy of the config.json of a variant; some families write into the one they get."""
    family = FAMILIES[variant]
    base = {"vocab_size": VOCAB} if "text_config" in family else BASE
    return deepcopy({**base, "model_type": variant.split(" ")[0], **family})
