"""How a model divides among ranks that share every layer, from config.json alone, without mlx.

A rank gets whole heads, and whole groups of quantised weights. Embedding, norms, routers and the projections that
compress keys and values are replicated on every rank, as in mlx-lm's `Model.shard`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from core.events import Value
from core.models.files.shape_settings import first, heads_of, number_bytes, text_config, width_of
from core.models.files.suitability import ALIASES
from core.numbers import Size

# mlx-lm modules with a `Model.shard`; a test compares the list
SHARDED: Final = frozenset({
    "deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_v41", "exaone_moe", "glm4_moe", "glm4_moe_lite",
    "glm_moe_dsa", "gpt_oss", "iquestloopcoder", "kimi_k25", "kimi_k3", "llama", "longcat_flash",
    "longcat_flash_ngram", "minimax", "minimax_m3_vl", "ministral3", "mistral4", "muse_spark", "prism_hadamard_qwen35",
    "qwen2", "qwen3", "qwen3_5", "qwen3_5_moe", "qwen3_moe", "solar_open", "step3p5",
})  # fmt: skip
# families that wrap such a module as their language model
WRAPPERS: Final = frozenset({"mistral3"})
# families that also divide the vocabulary, unless the output head is the embedding
_SHARE_VOCABULARY: Final = frozenset({"muse_spark", "prism_hadamard_qwen35", "qwen3_5", "qwen3_5_moe"})
# two sums over all ranks: after attention and after the MLP
REDUCES_A_LAYER: Final = 2
_WHOLE: Final = re.compile(r"norm|\.gate\.|router|q_a_proj|kv_a_proj|indexer|shared_expert_gate|correction_bias")
_ENDS: Final = re.compile(r"embed|lm_head")
_MLP_WIDTHS: Final = ("intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size")
_OTHER_HEADS: Final = ("linear_num_key_heads", "linear_num_value_heads", "o_groups")
# group sizes of formats whose config doesn't give them
_METHOD_GROUPS: Final = {"mxfp4": 32, "mxfp8": 32, "nvfp4": 16}


class Sharding(Value, frozen=True, kw_only=True):
    """How a model would be divided among ranks."""

    family: str = ""  # mlx-lm's module
    has_variant: bool = False  # the module has a `Model.shard`
    heads: Size = 1
    kv_heads: Size = 1
    pieces: tuple[tuple[str, Size], ...] = ()  # other counts that must divide: (name, count)
    hidden_bytes: Size = 0  # hidden state of one token, the unit of a sum over ranks
    reduces: Size = 0  # sums per token
    whole_bytes: Size = 0  # replicated weights of all layers
    has_whole_caches: bool = False  # every rank keeps the caches of all heads

    def indivisible(self, ranks: int) -> str:
        """Why the model can't be divided among that many ranks; "" if it can."""
        if self.heads % ranks or self.kv_heads % ranks:
            return f"{self.heads} heads and {self.kv_heads} KV heads do not divide by {ranks}"
        left = next((f"{count} {what}" for what, count in self.pieces if count % ranks), "")
        return f"{left} do not divide by {ranks}" if left else ""

    def weights_on(self, ranks: int, layer_bytes: int) -> int:
        """Bytes per rank, of `layer_bytes` in all layers."""
        return self.whole_bytes + _share(max(0, layer_bytes - self.whole_bytes), ranks)

    def caches_on(self, ranks: int, cache_bytes: int) -> int:
        """Bytes per rank, of `cache_bytes` for all heads."""
        return cache_bytes if self.has_whole_caches else _share(cache_bytes, ranks)


def is_whole(tensor: str) -> bool:
    """Whether every rank has the whole tensor of that name."""
    return bool(_WHOLE.search(tensor))


def sharding_of(config: dict[str, Any], layers: int, whole_bytes: int) -> Sharding:
    """Sharding of a model with this config.json. Raises TypeError or ValueError for a setting that isn't a number."""
    text, model_type = text_config(config), str(config.get("model_type", ""))
    family = ALIASES.get(model_type, model_type)
    heads, latent = heads_of(text), first(text, "kv_lora_rank") > 0
    is_tied = text.get("tie_word_embeddings") is True
    return Sharding(
        family=family,
        has_variant=family in SHARDED or family in WRAPPERS,
        heads=heads.number,
        kv_heads=heads.number if latent else heads.kv_number,
        pieces=(
            *_pieces(config, text, heads.number * (first(text, "v_head_dim") if latent else heads.width)),
            *([("words", first(text, "vocab_size"))] * (family in _SHARE_VOCABULARY and not is_tied)),
        ),
        hidden_bytes=max(0, width_of(text) * number_bytes(text)),
        reduces=REDUCES_A_LAYER * layers,
        whole_bytes=whole_bytes,
        has_whole_caches=latent,
    )


def _pieces(config: dict[str, Any], text: dict[str, Any], attention: int) -> Iterator[tuple[str, int]]:
    group = _group_size(config) or _group_size(text) or 1
    grouped = [("numbers of the heads", attention)]
    grouped += [(f"numbers of the {name.removesuffix('_size')}", first(text, name)) for name in _MLP_WIDTHS]
    for what, count in grouped:
        yield (f"groups of {group} {what}", count // group) if group > 1 else (what, count)
    yield from ((name, first(text, name)) for name in _OTHER_HEADS)


def _group_size(settings: dict[str, Any]) -> int:
    """Largest group size of the divided weights; 0 without quantisation."""
    named = (settings.get("quantization"), settings.get("quantization_config"))
    found: dict[str, Any] = next((each for each in named if isinstance(each, dict)), {})
    others = [each for path, each in found.items() if isinstance(each, dict) and not _replicated(path)]
    sizes = [each.get("group_size") for each in (found, *others)]
    method = _METHOD_GROUPS.get(str(found.get("quant_method", found.get("mode", ""))), 0)
    return max((size for size in sizes if type(size) is int and size > 0), default=method)


def _replicated(module: str) -> bool:
    """Whether every rank has all weights of the module; a divided vocabulary is divided by words."""
    return is_whole(f"{module}.") or bool(_ENDS.search(module))


def _share(count: int, ranks: int) -> int:
    return -(-count // ranks)
