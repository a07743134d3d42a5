"""Tiny config.json contents of made models. `made_families` adds more families of mlx-lm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from core.events import Value

_EPS: Final = 1e-5
_THETA: Final = 10_000.0
_WINDOW: Final = 8


class Shape(Value, frozen=True, kw_only=True):
    """Sizes of a made model. `hidden` must be a multiple of 32 for quantisation."""

    layers: int = 8
    hidden: int = 96
    vocab: int = 512
    intermediate: int = 128
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    context: int = 4096


def base(model_type: str, shape: Shape, **more: Any) -> dict[str, Any]:
    """The settings that families share."""
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


def sliding(shape: Shape, period: int = 4) -> dict[str, Any]:
    """Full attention in every `period`-th layer, in the others a window shorter than even a short prompt."""
    kinds = ["full_attention" if (i + 1) % period == 0 else "sliding_attention" for i in range(shape.layers)]
    if "full_attention" not in kinds:
        kinds[-1] = "full_attention"
    return {"layer_types": kinds, "sliding_window": _WINDOW}


def llama(shape: Shape) -> dict[str, Any]:
    return base("llama", shape, attention_bias=False, mlp_bias=False)


FAMILIES: Final[dict[str, Callable[[Shape], dict[str, Any]]]] = {
    "llama": llama,
    "llama_sliding": lambda shape: {**llama(shape), **sliding(shape)},
}
