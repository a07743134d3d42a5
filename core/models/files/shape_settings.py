"""Sizes from a config.json, whose key names differ by family. All functions raise TypeError or ValueError for a setting
that isn't a number.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from core.models.files.model_settings import MAX_COUNT

_HEADS: Final = ("num_attention_heads", "n_head", "n_heads", "num_heads")
_KV_HEADS: Final = ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "kv_n_heads", "num_attention_groups")
_WIDTHS: Final = ("hidden_size", "n_embd", "d_model", "model_dim", "hidden_dim")


class Heads(NamedTuple):
    """Attention heads: query heads, KV heads, and numbers per head."""

    number: int
    kv_number: int
    width: int


def text_config(config: dict[str, Any]) -> dict[str, Any]:
    """Settings of the language model, which multimodal families nest in `text_config`."""
    nested = config.get("text_config")
    return {**config, **nested} if isinstance(nested, dict) else config


def first(text: dict[str, Any], *names: str) -> int:
    """First of the settings that exists and isn't zero; else zero."""
    return next((int(text[name]) for name in names if text.get(name)), 0)


def width_of(text: dict[str, Any]) -> int:
    """Length of a hidden state."""
    return first(text, *_WIDTHS)


def heads_of(text: dict[str, Any]) -> Heads:
    """Heads of a layer; of the largest one if layers differ."""
    number = first(text, *_HEADS) or 1
    by_layer = text.get("num_kv_heads")
    most = min(MAX_COUNT, max(map(int, by_layer))) if isinstance(by_layer, list) else first(text, *_KV_HEADS)
    return Heads(number, most or number, first(text, "head_dim") or width_of(text) // number)


def number_bytes(text: dict[str, Any]) -> int:
    """Bytes per number of a hidden state."""
    return 4 if "float32" in (text.get("dtype"), text.get("torch_dtype")) else 2
