"""How many bytes the cache of a layer takes: as examining the model measured it, or roughly from config.json before."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from core.events import Value
from core.models.files.config_limits import MAX_COUNT

Count = Annotated[int, msgspec.Meta(ge=0)]

_HEADS: Final = ("num_attention_heads", "n_head", "n_heads", "num_heads")
_KV_HEADS: Final = ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "kv_n_heads", "num_attention_groups")
_WIDTHS: Final = ("hidden_size", "n_embd", "d_model", "model_dim", "hidden_dim")


class CacheSize(Value, frozen=True, kw_only=True):
    """Bytes that the cache of a layer takes for one row.

    `fixed_bytes`: of states, which have one size whatever the row's length. `bytes_per_token`: of what every token adds
    to. `window_bytes_per_token`: of what grows up to `window` tokens only. `quantised`: what `bytes_per_token` becomes
    in this many bits; empty where nobody measured it.
    """

    fixed_bytes: Count = 0
    bytes_per_token: Count = 0
    window_bytes_per_token: Count = 0
    window: Count = 0
    quantised: dict[int, Count] = msgspec.field(default_factory=dict)

    def bytes_for(self, tokens: int, kv_bits: int | None = None) -> int:
        """Bytes for a row of `tokens` tokens, kept in `kv_bits` bits if those are given."""
        grows = self._quantised(kv_bits) if kv_bits else self.bytes_per_token
        return self.fixed_bytes + tokens * grows + min(tokens, self.window) * self.window_bytes_per_token

    def _quantised(self, bits: int) -> int:
        # of 16 bits, with a scale and a bias of 16 bits for every 64 numbers
        return self.quantised.get(bits, -(-self.bytes_per_token * (2 * bits + 1) // 32))


def rough_size(text: dict[str, Any]) -> CacheSize:
    """The cache of any layer of a model with the settings `text`, as if each kept the keys and values of all tokens:
    what most families do. A model that is to be loaded is examined. Raises TypeError or ValueError for a setting that
    is no number.
    """
    if rank := _first(text, "kv_lora_rank"):
        numbers = rank + _first(text, "qk_rope_head_dim")
    else:
        heads = _first(text, *_HEADS) or 1
        head_dim = _first(text, "head_dim") or _first(text, *_WIDTHS) // heads
        by_layer = text.get("num_kv_heads")
        most = min(MAX_COUNT, max(map(int, by_layer))) if isinstance(by_layer, list) else _first(text, *_KV_HEADS)
        numbers = 2 * (most or heads) * head_dim
    return CacheSize(
        bytes_per_token=max(0, numbers) * (4 if "float32" in (text.get("dtype"), text.get("torch_dtype")) else 2)
    )


def _first(text: dict[str, Any], *names: str) -> int:
    """The first of some settings that is there and not zero; else zero."""
    return next((int(text[name]) for name in names if text.get(name)), 0)
