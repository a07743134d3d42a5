"""Cache bytes per layer: measured when the model is examined, before that estimated from config.json."""

from __future__ import annotations

from typing import Any

import msgspec

from core.events import Value
from core.models.files.shape_settings import first, heads_of, number_bytes
from core.numbers import Size


class CacheSize(Value, frozen=True, kw_only=True):
    """Bytes that one layer's cache takes for one row."""

    fixed_bytes: Size = 0  # states, which don't grow
    bytes_per_token: Size = 0
    window_bytes_per_token: Size = 0  # up to `window` tokens
    window: Size = 0
    #: bits -> bytes per token of a quantised cache; empty if not measured
    quantised: dict[int, Size] = msgspec.field(default_factory=dict)

    def bytes_for(self, tokens: int, kv_bits: int | None = None) -> int:
        """Bytes for a row of `tokens` tokens, quantised to `kv_bits` bits if given."""
        grows = self._quantised(kv_bits) if kv_bits else self.bytes_per_token
        return self.fixed_bytes + tokens * grows + min(tokens, self.window) * self.window_bytes_per_token

    def _quantised(self, bits: int) -> int:
        # from 16-bit numbers; each group of 64 has a 16-bit scale and bias
        return self.quantised.get(bits, -(-self.bytes_per_token * (2 * bits + 1) // 32))


def rough_size(text: dict[str, Any]) -> CacheSize:
    """Estimate of a layer's cache, assuming full attention. Raises TypeError, ValueError for a non-number."""
    if rank := first(text, "kv_lora_rank"):
        numbers = rank + first(text, "qk_rope_head_dim")
    else:
        heads = heads_of(text)
        numbers = 2 * heads.kv_number * heads.width
    return CacheSize(bytes_per_token=max(0, numbers) * number_bytes(text))
