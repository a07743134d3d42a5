"""Estimates the memory of a step, without weights and caches, from config.json: activations of a chunk, and logits.

Measured on MLX's CPU build (`mx.get_peak_memory`). One layer is computed at a time, so the widest layer counts.
"""

from __future__ import annotations

from typing import Any, Final

from core.events import Value
from core.models.files.shape_settings import first, heads_of, number_bytes, width_of
from core.numbers import Size

# activations of a token held at the same time in a layer: copies of the stream, queries, keys, MLP results
_STREAM: Final = 10
_HEADS: Final = 4
_MLP: Final = 3
# float32: logits, their logarithms, sorted, and summed by samplers
_LOGIT_BYTES: Final = 4 * 8
# head sizes for which Metal's attention kernel keeps no scores (MLX 0.32, `scaled_dot_product_attention`)
_FUSED: Final = (64, 80, 128)


class StepSize(Value, frozen=True, kw_only=True):
    """Memory of a step; scores count only where the attention kernel keeps them."""

    token_bytes: Size = 0  # activations per token of a chunk
    score_bytes: Size = 0  # attention scores per token of a chunk and token of the context
    fused: bool = False  # Metal's attention kernel keeps no scores
    logit_bytes: Size = 0  # all logits of a position

    def layer_bytes(self, chunk: int, context: int, *, quantised: bool) -> int:
        """Bytes for a layer that computes the last `chunk` tokens of `context`. No kernel reads `quantised` caches."""
        scores = 0 if self.fused and not quantised else context * self.score_bytes
        return chunk * (self.token_bytes + scores)


def step_size(text: dict[str, Any]) -> StepSize:
    """Estimate for a model with the settings `text`. Raises TypeError or ValueError for a non-number."""
    number, width = number_bytes(text), width_of(text)
    heads, kv_heads, head_dim = heads_of(text)
    rank = first(text, "kv_lora_rank")
    if rank:
        head_dim = max(head_dim, first(text, "qk_nope_head_dim") + first(text, "qk_rope_head_dim"))
    keys = rank + heads * head_dim if rank else 2 * kv_heads * head_dim
    inner = first(text, "intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim") or 4 * width
    experts = first(text, "num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "top_k_experts")
    routed = experts * (2 * width + _MLP * (first(text, "moe_intermediate_size") or inner))
    numbers = _STREAM * width + _HEADS * (heads * head_dim + keys) + max(_MLP * inner, routed)
    return StepSize(
        token_bytes=max(0, number * numbers),
        score_bytes=max(0, number * heads * (2 if rank else 1)),  # by content and by position
        fused=head_dim in _FUSED and not rank,
        logit_bytes=max(0, _LOGIT_BYTES * first(text, "vocab_size")),
    )
