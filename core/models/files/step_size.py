"""How many bytes a step takes beside weights and caches, roughly, from config.json: what layers make of the tokens of a
chunk, and what becomes of logits until a token is chosen.

Measured on MLX's CPU build (`mx.get_peak_memory`): one layer is computed at a time, so what counts is the widest one.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from core.events import Value
from core.models.files.shape_settings import first, heads_of, number_bytes, width_of

Count = Annotated[int, msgspec.Meta(ge=0)]

# what a layer holds of a token at the same time: copies of the stream, of queries and keys, of what the MLP makes
_STREAM: Final = 10
_HEADS: Final = 4
_MLP: Final = 3
# float32, logits and their logarithms, sorted and summed by samplers
_LOGIT_BYTES: Final = 4 * 8
# widths of a head for which Metal's kernel of attention keeps no scores (MLX 0.32, `scaled_dot_product_attention`)
_FUSED: Final = (64, 80, 128)


class StepSize(Value, frozen=True, kw_only=True):
    """`token_bytes`: of a token of a chunk. `score_bytes`: of such a token and one before it, what attention keeps of
    them where no kernel does without; `fused`: where Metal's does. `logit_bytes`: of all logits of a position.
    """

    token_bytes: Count = 0
    score_bytes: Count = 0
    fused: bool = False
    logit_bytes: Count = 0

    def layer_bytes(self, chunk: int, context: int, *, quantised: bool) -> int:
        """Bytes for `chunk` tokens of a prompt that are the last ones of `context` tokens. No kernel reads `quantised`
        caches.
        """
        scores = 0 if self.fused and not quantised else context * self.score_bytes
        return chunk * (self.token_bytes + scores)


def step_size(text: dict[str, Any]) -> StepSize:
    """That of a model with the settings `text`. Raises TypeError or ValueError for a setting that is no number."""
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
