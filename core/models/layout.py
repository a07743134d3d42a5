"""How many bytes each layer of a model weighs, and how many its KV cache takes: what a plan needs, without mlx.

Weights come from the safetensors headers. KV figures follow what mlx-lm 0.32 really keeps per layer, which is not
always what the paper of a family says (a plain cache for sliding layers in qwen, a latent in deepseek).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from core.errors import BadModel
from core.events import Value
from core.models.headers import Tensor, read_config, read_tensors, text_config
from core.settings import PREFILL_CHUNK

_LAYER: Final = re.compile(r"(?:^|\.)(layers|h|blocks)\.(\d+)\.")
# parts that mlx-lm drops when it loads a multimodal or multi-token-prediction checkpoint as a language model
_NOT_LOADED: Final = re.compile(r"(?:^|[._])(vision|visual|audio|image|multi_?modal|mtp)(?:[._]|$)")
_HEAD: Final = re.compile(r"(?:^|\.)(lm_head|embed_out|output|head)\.")
_NORM: Final = re.compile(r"(?:^|\.)(?:final_?|out_?|output_?|embedding_)?(?:layer_?norm|norm_?f|norm|ln_f|ln_out)\.")
_LAYER_COUNTS: Final = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers")

# modules of mlx-lm whose sliding layers keep a rotating cache; all others keep every token
_ROTATING: Final = frozenset(
    {"afmoe", "cohere2", "exaone4", "exaone_moe", "gemma3", "gemma3_text", "gemma3n", "gemma3n_text", "gemma4"}
    | {"gemma4_unified", "gemma4_text", "gpt_oss", "laguna", "llama", "mellum", "mimo_v2_flash", "ministral3"}
    | {"mistral", "muse_glimmer", "olmo3", "plamo3", "spark2_5", "step3p5"}
)
# modules that expand the latent of multi-head latent attention before they cache it
_EXPANDED_LATENT: Final = frozenset({"deepseek_v2", "minicpm3", "youtu_llm"})
_STATE_ONLY: Final = frozenset({"mamba", "mamba2", "falcon_mamba", "rwkv7"})
_STATE_LAYERS: Final = ("linear", "mamba", "conv", "recurrent", "ssm")


class Layout(Value, frozen=True, kw_only=True):
    """Bytes of a model, layer by layer. Layer ranges are half-open.

    `embed_bytes`: what is read before layer 0. `output_bytes`: final norm and head, without the embedding of a `tied`
    model. `kv_bytes_per_token[i]`: cache of layer i for one token of one row. `kv_caps[i]`: tokens after which the
    cache of layer i grows no more (0: never).
    """

    layers: int
    layer_bytes: tuple[int, ...]
    embed_bytes: int
    output_bytes: int
    tied: bool
    kv_bytes_per_token: tuple[int, ...]
    kv_caps: tuple[int, ...]

    @property
    def total_bytes(self) -> int:
        """Bytes of the whole model in one process."""
        return self.stage_bytes(0, self.layers, embed=True, output=True)

    def stage_bytes(self, start: int, stop: int, *, embed: bool, output: bool) -> int:
        """Bytes of weights that a stage [start, stop) holds; a tied head without the embedding brings its own copy."""
        layers = sum(self.layer_bytes[start:stop])
        embeddings = self.embed_bytes if embed or (output and self.tied) else 0
        return layers + embeddings + (self.output_bytes if output else 0)

    def kv_bytes(self, start: int, stop: int, context: int) -> int:
        """Bytes of the caches of layers [start, stop) for one row of `context` tokens."""
        pairs = zip(self.kv_bytes_per_token[start:stop], self.kv_caps[start:stop], strict=True)
        return sum(size * (min(context, cap) if cap else context) for size, cap in pairs)


def read_layout(directory: Path) -> Layout:
    """The layout of a model directory; raises ModelNotFound or BadModel."""
    config = read_config(directory)
    return layout_of(config, read_tensors(directory), directory.name)


def layout_of(config: dict[str, Any], tensors: Mapping[str, Tensor], name: str) -> Layout:
    """The layout of a model called `name`; raises BadModel if its tensors are no stack of layers."""
    text = text_config(config)
    loaded = {n: t.nbytes for n, t in tensors.items() if not _NOT_LOADED.search(n)}
    per_layer = _main_stack(loaded)
    layers = _layer_count(text, per_layer, name)
    rest = {n: size for n, size in loaded.items() if not _LAYER.search(n)}
    heads = sum(size for n, size in rest.items() if _HEAD.search(n))
    tied = text.get("tie_word_embeddings") is True or heads == 0
    norms = sum(size for n, size in rest.items() if _NORM.search(n) and not _HEAD.search(n))
    try:
        kv = [_kv(text, str(config["model_type"]), i, layers) for i in range(layers)]
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise BadModel(f"config.json in {name} has a setting that makes no sense: {error}.") from error
    return Layout(
        layers=layers,
        layer_bytes=tuple(per_layer.get(i, 0) for i in range(layers)),
        embed_bytes=sum(rest.values()) - heads - norms,
        output_bytes=norms + (0 if tied else heads),
        tied=tied,
        kv_bytes_per_token=tuple(size for size, _ in kv),
        kv_caps=tuple(cap for _, cap in kv),
    )


def _main_stack(loaded: Mapping[str, int]) -> dict[int, int]:
    """Layer number -> bytes, of the heaviest stack of numbered layers."""
    stacks: dict[str, dict[int, int]] = {}
    for name, size in loaded.items():
        if match := _LAYER.search(name):
            stack = stacks.setdefault(name[: match.start(2)], {})
            stack[int(match[2])] = stack.get(int(match[2]), 0) + size
    return max(stacks.values(), key=lambda stack: sum(stack.values()), default={})


def _layer_count(text: dict[str, Any], per_layer: Mapping[int, int], name: str) -> int:
    counts = [n for key in _LAYER_COUNTS if isinstance(n := text.get(key), int)]
    # layers behind the configured ones are multi-token-prediction heads, which mlx-lm drops
    layers = counts[0] if counts else max(per_layer, default=-1) + 1
    if layers < 1 or layers > 10_000 or not per_layer:
        raise BadModel(f"{name} holds no layers.")
    if max(per_layer) + 1 < layers:
        raise BadModel(f"{name} is incomplete: config.json says {layers} layers, its files end with {max(per_layer)}.")
    return layers


def _kv(text: dict[str, Any], model_type: str, layer: int, layers: int) -> tuple[int, int]:
    """(bytes per token, cap in tokens or 0) of one layer's cache for one row."""
    kind = _layer_kind(text, model_type, layer)
    own_kv = layer < layers - int(text.get("num_kv_shared_layers") or 0)
    if model_type in _STATE_ONLY or kind == "state" or not own_kv:
        return 0, 0
    width = 4 if "float32" in (text.get("dtype"), text.get("torch_dtype")) else 2
    window = text.get("sliding_window") or text.get("attention_window_size") or 0
    if kind == "sliding" and model_type in _ROTATING and window:
        # a prefill chunk is appended whole before the window is trimmed
        return _elements(text, model_type, kind) * width, int(window) + PREFILL_CHUNK
    return _elements(text, model_type, kind) * width, 0


def _layer_kind(text: dict[str, Any], model_type: str, layer: int) -> str:
    """ "full", "sliding" or "state"."""
    kinds = text.get("layer_types") or text.get("layers_block_type")
    if isinstance(kinds, list) and layer < len(kinds):
        kind = str(kinds[layer])
        if any(word in kind for word in _STATE_LAYERS):
            return "state"
        return "sliding" if "sliding" in kind else "full"
    if interval := text.get("full_attention_interval"):
        return "full" if (layer + 1) % int(interval) == 0 else "state"
    if pattern := text.get("hybrid_override_pattern"):
        return "full" if pattern[layer : layer + 1] == "*" else "state"
    default = {"gemma3": 6, "gemma3_text": 6, "gemma4_text": 5, "cohere2": 4, "gpt_oss": 2}.get(model_type, 0)
    pattern = int(text.get("sliding_window_pattern") or default)
    return "sliding" if pattern and (layer + 1) % pattern else "full"


def _elements(text: dict[str, Any], model_type: str, kind: str) -> int:
    """Numbers that one token adds to a layer's cache."""
    heads = int(text.get("num_attention_heads") or text.get("n_head") or text.get("n_heads") or 1)
    hidden = int(text.get("hidden_size") or text.get("n_embd") or text.get("d_model") or 0)
    if rank := text.get("kv_lora_rank"):
        rope = int(text.get("qk_rope_head_dim") or 0)
        if model_type not in _EXPANDED_LATENT:
            return int(rank) + rope + int(text.get("index_head_dim") or 0)
        return heads * (int(text.get("qk_nope_head_dim") or 0) + rope + int(text.get("v_head_dim") or hidden // heads))
    kv_heads = int(text.get("num_key_value_heads") or text.get("multi_query_group_num") or heads)
    head_dim = int(text.get("head_dim") or hidden // heads)
    if kind == "full":
        head_dim = int(text.get("global_head_dim") or head_dim)
        if text.get("attention_k_eq_v"):
            kv_heads = int(text.get("num_global_key_value_heads") or kv_heads)
    return 2 * kv_heads * head_dim
