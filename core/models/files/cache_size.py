"""How many bytes the cache of a layer takes: as examining the model measured it, or roughly from config.json before."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from core.events import Value
from core.models.files.shape_settings import first, heads_of, number_bytes

Count = Annotated[int, msgspec.Meta(ge=0)]


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
    if rank := first(text, "kv_lora_rank"):
        numbers = rank + first(text, "qk_rope_head_dim")
    else:
        heads = heads_of(text)
        numbers = 2 * heads.kv_number * heads.width
    return CacheSize(bytes_per_token=max(0, numbers) * number_bytes(text))
