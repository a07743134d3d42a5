"""How many bytes the cache of each layer takes for a token, from config.json alone.

The figures follow what mlx-lm 0.32 really keeps, which is not always what the paper of a family says (a plain cache for
sliding layers in qwen, a latent in deepseek, keys that are kept twice for an indexer).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

from core.events import Value
from core.settings import PREFILL_CHUNK

Kind = Literal["full", "sliding", "state"]

# modules of mlx-lm whose sliding layers keep a rotating cache; all others keep every token
_ROTATING: Final = frozenset(
    {"afmoe", "baichuan_m1", "cohere2", "exaone4", "exaone_moe", "gear", "gemma3", "gemma3_text", "gemma3n"}
    | {"gemma4", "gemma4_unified", "gemma4_text", "gpt_oss", "iquestcoder", "laguna", "llama", "llama4", "mellum"}
    | {"mimo_v2_flash", "ministral3", "mistral", "muse_glimmer", "muse_spark", "olmo3", "plamo3", "recurrent_gemma"}
    | {"spark2_5", "step3p5", "xverse"}
)
# modules that expand the latent of multi-head latent attention before they cache it
_EXPANDED_LATENT: Final = frozenset({"deepseek_v2", "minicpm3", "youtu_llm"})
# modules that keep the keys of their indexer twice
_KEYS_TWICE: Final = frozenset({"deepseek_v32", "glm_moe_dsa"})
_TWO_ATTENTIONS: Final = frozenset({"longcat_flash", "longcat_flash_ngram"})
_ALL_HEADS: Final = frozenset({"gpt_neox", "gptj", "qwen"})
_STATE_ONLY: Final = frozenset({"mamba", "mamba2", "falcon_mamba", "rwkv7"})
# what mlx-lm takes where config.json is silent
_DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    "bailing_moe_v3": {"layer_group_size": 4},
    "cohere2": {"sliding_window_pattern": 4},
    "gemma3": {"sliding_window_pattern": 6},
    "gemma3_text": {"sliding_window_pattern": 6},
    "gemma4": {"sliding_window_pattern": 5},
    "gemma4_text": {"sliding_window_pattern": 5},
    "gemma4_unified": {"sliding_window_pattern": 5},
    "gpt_oss": {"sliding_window_pattern": 2},
    "iquestloopcoder": {"loop_num": 2},
    "llama4": {"sliding_window_pattern": 4},
    "muse_glimmer": {"sliding_window_pattern": 4},
    "olmo3": {"sliding_window_pattern": 4},
    "plamo": {"n_shared_head": 8},
    "plamo2": {"mamba_step": 2},
    "plamo3": {"sliding_window_pattern": 8},
    "spark2_5": {"sliding_window_pattern": 4},
}
_WINDOWS: Final = (
    "sliding_window", "attention_window_size", "sliding_window_size", "window_size", "attention_chunk_size",
)  # fmt: skip


class LayerKv(Value, frozen=True, kw_only=True):
    """The cache of one layer for one row: bytes a token, and the tokens after which it grows no more (0: never)."""

    bytes_per_token: int
    cap: int = 0


def kv_of(text: dict[str, Any], model_type: str, layers: int) -> list[LayerKv]:
    """The caches of the `layers` layers of a model with the settings `text`; states of fixed size count as nothing.

    Raises what a setting that makes no sense raises: TypeError, ValueError, LookupError, ArithmeticError or
    AttributeError.
    """
    text = _DEFAULTS.get(model_type, {}) | {name: value for name, value in text.items() if value is not None}
    return [_layer(text, model_type, layer, layers) for layer in range(layers)]


def _layer(text: dict[str, Any], model_type: str, layer: int, layers: int) -> LayerKv:
    kind = _kind(text, model_type, layer, layers)
    if kind == "state":
        return LayerKv(bytes_per_token=0)
    width = 4 if "float32" in (text.get("dtype"), text.get("torch_dtype")) else 2
    loops = _first(text, "num_loops", "loop_num") or 1
    size = _elements(text, model_type, kind, layer) * width * loops
    window = _first(text, *_WINDOWS)
    if min(size, window) < 0:
        raise ValueError("a cache has less than no bytes")
    if kind == "sliding" and window and model_type in _ROTATING:
        # a prefill chunk is appended whole before the window is trimmed
        return LayerKv(bytes_per_token=size, cap=window + PREFILL_CHUNK)
    return LayerKv(bytes_per_token=size)


Rule = Callable[[Any, dict[str, Any], int, int], Kind]


def _named(kinds: Any, _: dict[str, Any], layer: int, __: int) -> Kind:
    name = str(kinds[layer])
    if "linear" in name or "attention" not in name:
        return "state"
    return "sliding" if "sliding" in name or "chunked" in name else "full"


def _every(period: Any, _: dict[str, Any], layer: int, __: int) -> Kind:
    return "state" if (layer + 1) % int(period) else "full"


def _grouped(size: Any, _: dict[str, Any], layer: int, layers: int) -> Kind:
    return "full" if (layer + 1) % int(size) == 0 or layer >= layers // int(size) * int(size) else "state"


def _windowed(period: Any, _: dict[str, Any], layer: int, __: int) -> Kind:
    if isinstance(period, str):
        return "sliding" if period[layer % len(period)] == "L" else "full"
    return "sliding" if (layer + 1) % int(period) else "full"


def _mamba_step(step: Any, _: dict[str, Any], layer: int, layers: int) -> Kind:
    if layers <= int(step) // 2:
        return "full" if layer == layers - 1 else "state"
    return "full" if layer % int(step) == int(step) // 2 else "state"


# the setting that says of which kind each layer is, the first that is there counts
_RULES: Final[dict[str, Rule]] = {
    "layer_types": _named,
    "layers_block_type": _named,
    "full_attention_interval": _every,
    "hybrid_override_pattern": lambda marks, _, layer, __: "full" if marks[layer] == "*" else "state",
    "layer_group_size": _grouped,
    "linear_attn_config": lambda lists, _, layer, __: "state" if layer + 1 in lists["kda_layers"] else "full",
    "attn_layer_period": lambda period, text, layer, _: (
        "full" if layer % int(period) == int(text["attn_layer_offset"]) else "state"
    ),
    "full_attn_idxs": lambda full, _, layer, __: "full" if layer in full else "state",
    "block_types": lambda kinds, _, layer, __: "sliding" if kinds[layer % len(kinds)] == "attention" else "state",
    "kv_source_layer_ids": lambda sources, _, layer, __: "full" if layer in sources else "state",
    "mamba_step": _mamba_step,
    "sliding_window_layers": lambda sliding, _, layer, __: "sliding" if layer in sliding else "full",
    "hybrid_layer_pattern": lambda marks, _, layer, __: "sliding" if marks[layer] else "full",
    "sliding_window_pattern": _windowed,
}


def _kind(text: dict[str, Any], model_type: str, layer: int, layers: int) -> Kind:
    if model_type in _STATE_ONLY or layer >= layers - _first(text, "num_kv_shared_layers", "num_kv_reuse_layers"):
        return "state"
    for setting, rule in _RULES.items():
        if value := text.get(setting):
            return rule(value, text, layer, layers)
    return "full"


def _elements(text: dict[str, Any], model_type: str, kind: Kind, layer: int) -> int:
    """Numbers that one token adds to a layer's cache."""
    if ratios := text.get("compress_ratios"):
        return (int(text["head_dim"]) + int(text["index_head_dim"])) // int(ratios[layer])
    heads = _first(text, "num_attention_heads", "n_head", "n_heads", "num_heads") or 1
    if isinstance(heads_by_layer := text.get("num_query_heads"), list):
        heads = int(heads_by_layer[layer])
    hidden = _first(text, "hidden_size", "n_embd", "d_model", "model_dim", "hidden_dim")
    if text.get("kv_lora_rank"):
        return _latent(text, model_type, heads, hidden)
    kv_heads = _kv_heads(text, model_type, kind, layer, heads)
    head_dim = _first(text, "head_dim", "hidden_size_per_head", "kv_channels") or hidden // heads
    value_dim = _first(text, "v_head_dim") or head_dim
    if kind == "full":
        head_dim, value_dim = _first(text, "global_head_dim") or head_dim, _first(text, "global_head_dim") or value_dim
    elif model_type == "mimo_v2_flash":
        head_dim, value_dim = int(text["swa_head_dim"]), int(text["swa_v_head_dim"])
    sparse = text.get("sparse_attention_freq") or ()
    indexer = int(text["index_head_dim"]) if len(sparse) > layer and sparse[layer] else 0
    return kv_heads * (head_dim + value_dim) + indexer


def _latent(text: dict[str, Any], model_type: str, heads: int, hidden: int) -> int:
    rank, rope = int(text["kv_lora_rank"]), int(text.get("qk_rope_head_dim") or 0)
    if model_type in _EXPANDED_LATENT:
        value_dim = _first(text, "v_head_dim") or hidden // heads
        return heads * (int(text.get("qk_nope_head_dim") or 0) + rope + value_dim)
    indexer = int(text.get("index_head_dim") or 0)
    both = 2 if model_type in _TWO_ATTENTIONS else 1
    return (rank + rope) * both + (2 * indexer if model_type in _KEYS_TWICE else 0)


def _kv_heads(text: dict[str, Any], model_type: str, kind: Kind, layer: int, heads: int) -> int:
    if model_type == "gpt_bigcode":
        return 1 if text.get("multi_query", True) else heads
    if model_type in _ALL_HEADS:
        return heads
    if shared := _first(text, "n_shared_head"):
        return -(-heads // shared)
    if blocks := text.get("block_configs"):
        attention = blocks[layer]["attention"]
        active = not attention.get("no_op") and not attention.get("replace_with_linear")
        return heads // int(attention["n_heads_in_group"]) if active else 0
    if isinstance(by_layer := text.get("num_kv_heads"), list):
        return int(by_layer[layer])
    if kind == "sliding" and (own := _first(text, "swa_num_key_value_heads", "num_swa_key_value_heads")):
        return own
    if kind == "sliding" and (other := text.get("attention_other_setting")):
        return int(other["num_attention_groups"])
    if kind == "full" and text.get("attention_k_eq_v") and (own := _first(text, "num_global_key_value_heads")):
        return own
    grouped = {**text, **text["attn_config"]} if isinstance(text.get("attn_config"), dict) else text
    names = ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "kv_n_heads", "multi_query_group_num")
    return _first(grouped, *names, "num_attention_groups") or heads


def _first(text: dict[str, Any], *names: str) -> int:
    """The first of some settings that is there and not zero; else zero."""
    return next((int(text[name]) for name in names if text.get(name)), 0)
