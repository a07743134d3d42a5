"""Configs of models as published by their makers, for making rows without the hub.

Contains only settings that decide byte sizes. The bits are those of mlx-community's conversions.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

_SIZES: Final = (
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    *("vocab_size", "max_position_embeddings"),
)


class Published(NamedTuple):
    """A repository of mlx-community: licence, config, bits of its weights, quantisation mode of its `experts`."""

    name: str
    licence: str
    config: dict[str, Any]
    bits: int = 4
    experts: str = ""

    @property
    def repo(self) -> str:
        return f"mlx-community/{self.name}"


def _dense(family: str, *sizes: int, **more: Any) -> dict[str, Any]:
    return {
        "model_type": family,
        **dict(zip(_SIZES, sizes, strict=True)),
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e6,
        "tie_word_embeddings": False,
        **more,
    }


def _llama(*sizes: int, tied: bool = False) -> dict[str, Any]:
    return _dense("llama", *sizes, 128256, 131072, tie_word_embeddings=tied)


def _qwen3(*sizes: int, tied: bool = False) -> dict[str, Any]:
    return _dense("qwen3", *sizes, 151936, 40960, head_dim=128, tie_word_embeddings=tied)


def _qwen3_moe(*sizes: int, mlp: int, experts: int, context: int = 262144) -> dict[str, Any]:
    return _dense(
        "qwen3_moe",
        *(*sizes, 151936, context),
        head_dim=128,
        moe_intermediate_size=mlp,
        num_experts=experts,
        num_experts_per_tok=8,
        decoder_sparse_step=1,
        mlp_only_layers=[],
        norm_topk_prob=True,
    )


def _qwen2(*sizes: int) -> dict[str, Any]:
    return _dense("qwen2", *sizes, 152064, 32768)


def _mistral(*sizes: int) -> dict[str, Any]:
    return _dense("mistral", *sizes, head_dim=128)


def _gemma2(*sizes: int, head_dim: int) -> dict[str, Any]:
    return _dense(
        "gemma2",
        *(*sizes, 256000, 8192),
        head_dim=head_dim,
        query_pre_attn_scalar=head_dim,
        attn_logit_softcapping=50.0,
        final_logit_softcapping=30.0,
        tie_word_embeddings=True,
    )


def _deepseek(family: str, heads: int, experts: int, dense: int, vocab: int, context: int) -> dict[str, Any]:
    return _dense(
        family,
        *(7168, 18432, 61, heads, heads, vocab, context),
        moe_intermediate_size=2048,
        n_routed_experts=experts,
        n_shared_experts=1,
        num_experts_per_tok=8,
        moe_layer_freq=1,
        first_k_dense_replace=dense,
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        n_group=1,
        topk_group=1,
        topk_method="noaux_tc",
        scoring_func="sigmoid",
        norm_topk_prob=True,
        routed_scaling_factor=2.5,
        attention_bias=False,
    )


def _glm4_moe(*sizes: int, mlp: int, experts: int, dense: int, qk_norm: bool) -> dict[str, Any]:
    return _dense(
        "glm4_moe",
        *(*sizes, 151552, 131072),
        head_dim=128,
        moe_intermediate_size=mlp,
        n_routed_experts=experts,
        n_shared_experts=1,
        num_experts_per_tok=8,
        first_k_dense_replace=dense,
        use_qk_norm=qk_norm,
        attention_bias=True,
        partial_rotary_factor=0.5,
        n_group=1,
        topk_group=1,
        norm_topk_prob=True,
        routed_scaling_factor=1.0,
        rope_scaling=None,
    )


def _gpt_oss(layers: int, experts: int) -> dict[str, Any]:
    return _dense(
        "gpt_oss",
        *(2880, 2880, layers, 64, 8, 201088, 131072),
        head_dim=64,
        num_local_experts=experts,
        num_experts_per_tok=4,
        sliding_window=128,
        layer_types=["sliding_attention", "full_attention"] * (layers // 2),
    )


_LLAMA_70B: Final = _llama(8192, 28672, 80, 64, 8)
_QWEN3_32B: Final = _qwen3(5120, 25600, 64, 64, 8)
_QWEN3_30B: Final = _qwen3_moe(2048, 6144, 48, 32, 4, mlp=768, experts=128)
_GPT_OSS_EXPERTS: Final = "mxfp4"

PUBLISHED: Final = (
    Published("Llama-3.2-1B-Instruct-4bit", "llama3.2", _llama(2048, 8192, 16, 32, 8, tied=True)),
    Published("Llama-3.2-3B-Instruct-4bit", "llama3.2", _llama(3072, 8192, 28, 24, 8, tied=True)),
    Published("Meta-Llama-3.1-8B-Instruct-4bit", "llama3.1", _llama(4096, 14336, 32, 32, 8)),
    Published("Llama-3.3-70B-Instruct-4bit", "llama3.3", _LLAMA_70B),
    Published("Llama-3.3-70B-Instruct-8bit", "llama3.3", _LLAMA_70B, 8),
    Published("Meta-Llama-3.1-405B-4bit", "llama3.1", _llama(16384, 53248, 126, 128, 8)),
    Published("DeepSeek-R1-Distill-Llama-70B-4bit", "mit", _LLAMA_70B),
    Published("Qwen3-0.6B-4bit", "apache-2.0", _qwen3(1024, 3072, 28, 16, 8, tied=True)),
    Published("Qwen3-1.7B-4bit", "apache-2.0", _qwen3(2048, 6144, 28, 16, 8, tied=True)),
    Published("Qwen3-4B-4bit", "apache-2.0", _qwen3(2560, 9728, 36, 32, 8, tied=True)),
    Published("Qwen3-8B-4bit", "apache-2.0", _qwen3(4096, 12288, 36, 32, 8)),
    Published("Qwen3-14B-4bit", "apache-2.0", _qwen3(5120, 17408, 40, 40, 8)),
    Published("Qwen3-32B-4bit", "apache-2.0", _QWEN3_32B),
    Published("Qwen3-32B-8bit", "apache-2.0", _QWEN3_32B, 8),
    Published("Qwen3-30B-A3B-Instruct-2507-4bit", "apache-2.0", _QWEN3_30B),
    Published("Qwen3-Coder-30B-A3B-Instruct-4bit", "apache-2.0", _QWEN3_30B),
    Published(
        "Qwen3-235B-A22B-Instruct-2507-4bit", "apache-2.0", _qwen3_moe(4096, 12288, 94, 64, 4, mlp=1536, experts=128)
    ),
    Published(
        "Qwen3-Coder-480B-A35B-Instruct-4bit", "apache-2.0", _qwen3_moe(6144, 8192, 62, 96, 8, mlp=2560, experts=160)
    ),
    Published("Qwen2.5-7B-Instruct-4bit", "apache-2.0", _qwen2(3584, 18944, 28, 28, 4)),
    Published("Qwen2.5-Coder-32B-Instruct-4bit", "apache-2.0", _qwen2(5120, 27648, 64, 40, 8)),
    Published("Qwen2.5-72B-Instruct-4bit", "qwen", _qwen2(8192, 29568, 80, 64, 8)),
    Published("Mistral-7B-Instruct-v0.3-4bit", "apache-2.0", _mistral(4096, 14336, 32, 32, 8, 32768, 32768)),
    Published("Mistral-Small-24B-Instruct-2501-4bit", "apache-2.0", _mistral(5120, 32768, 40, 32, 8, 131072, 32768)),
    Published("gemma-2-9b-it-4bit", "gemma", _gemma2(3584, 14336, 42, 16, 8, head_dim=256)),
    Published("gemma-2-27b-it-4bit", "gemma", _gemma2(4608, 36864, 46, 32, 16, head_dim=128)),
    Published("phi-4-4bit", "mit", _dense("phi3", 5120, 17920, 40, 40, 10, 100352, 16384)),
    Published("gpt-oss-20b-MXFP4-Q8", "apache-2.0", _gpt_oss(24, 32), 8, _GPT_OSS_EXPERTS),
    Published("gpt-oss-120b-MXFP4-Q8", "apache-2.0", _gpt_oss(36, 128), 8, _GPT_OSS_EXPERTS),
    Published(
        "GLM-4.5-Air-4bit", "mit", _glm4_moe(4096, 10944, 46, 96, 8, mlp=1408, experts=128, dense=1, qk_norm=False)
    ),
    Published("GLM-4.5-4bit", "mit", _glm4_moe(5120, 12288, 92, 96, 8, mlp=1536, experts=160, dense=3, qk_norm=True)),
    Published("DeepSeek-V3-0324-4bit", "mit", _deepseek("deepseek_v3", 128, 256, 3, 129280, 163840)),
    Published("DeepSeek-R1-0528-4bit", "mit", _deepseek("deepseek_v3", 128, 256, 3, 129280, 163840)),
    Published("Kimi-K2-Instruct-4bit", "other", _deepseek("kimi_k2", 64, 384, 1, 163840, 131072)),
)
