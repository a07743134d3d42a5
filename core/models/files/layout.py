"""Byte sizes of a model's layers, for planning without mlx."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeGuard

from core.errors import BadModel
from core.events import Value
from core.models.files.cache_size import CacheSize, rough_size
from core.models.files.checked_files import OTHER_VERSION
from core.models.files.safetensors import Tensor
from core.models.files.shape_settings import first, text_config
from core.models.files.sharding import Sharding, is_whole, sharding_of
from core.models.files.step_size import StepSize, step_size

_LAYER: Final = re.compile(r"(?:^|\.)(layers|h|blocks|kv_reuse_layers)\.(\d+)\.")
_DIGITS: Final = 5  # of a layer's number
# tensors that mlx-lm drops when it loads a multimodal or multi-token-prediction checkpoint as a language model
_NOT_LOADED: Final = re.compile(r"(?:^|[._])(vision|visual|audio|image|multi_?modal|mm|patch_merge|mtp)(?:[._]|$)")
_HEAD: Final = re.compile(r"(?:^|\.)(lm_head|embed_out|output|head)\.")
_NORM: Final = re.compile(r"(?:^|\.)(?:final_?|out_?|output_?|embedding_)?(?:layer_?norm|norm_?f|norm|ln_f|ln_out)\.")
# experts that every token passes are called shared
_EXPERTS: Final = re.compile(r"\.(?:experts|switch_mlp|switch_glu)\.")
_EXPERT_COUNTS: Final = (
    ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"),
    ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k", "top_k_experts"),
)
# measured with real tokenizers: a process without one, and its growth with each byte of tokenizer.json
_TOKENIZER_PROCESSES: Final = 2
_PROCESS_BYTES: Final = 75_000_000
_PER_FILE_BYTE: Final = 10.5
_WORD_BYTES: Final = 115  # of tokenizer.json per word, where its size is not known
_LAYER_COUNTS: Final = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers")


class Layout(Value, frozen=True, kw_only=True):
    """Byte sizes of a model, layer by layer. Layer ranges are half-open."""

    layers: int
    layer_bytes: tuple[int, ...]  # weights of each layer
    token_bytes: tuple[int, ...]  # weights per layer that one token needs (only some experts)
    embed_bytes: int  # read before layer 0
    output_bytes: int  # final norm and head, without the embedding of a tied model
    tied: bool  # the output head is the embedding
    caches: tuple[CacheSize, ...]  # per layer, estimated until the model is examined
    step: StepSize = StepSize()  # memory for computing a step
    sharding: Sharding = Sharding()  # division among ranks
    tokenizer_bytes: int = 0  # memory of the tokenizer's processes on the head

    @property
    def total_bytes(self) -> int:
        """Weight bytes of the whole model in one process."""
        return self.stage_bytes(0, self.layers, embed=True, output=True)

    def stage_bytes(self, start: int, stop: int, *, embed: bool, output: bool) -> int:
        """Weight bytes of a stage [start, stop); a tied head without the embedding needs its own copy."""
        layers = sum(self.layer_bytes[start:stop])
        embeddings = self.embed_bytes if embed or (output and self.tied) else 0
        return layers + embeddings + (self.output_bytes if output else 0)

    def read_bytes(self, start: int, stop: int, *, output: bool) -> int:
        """Weight bytes that a stage [start, stop) reads for one token; only one row of the embedding."""
        return sum(self.token_bytes[start:stop]) + output * (self.output_bytes + self.tied * self.embed_bytes)


def layout_of(
    config: dict[str, Any], tensors: Mapping[str, Tensor], name: str, tokenizer_file_bytes: int = 0
) -> Layout:
    """Layout of the model `name`. Raises BadModel if its tensors aren't a stack of layers."""
    text = text_config(config)
    unpacked = _is_unpacked(config)
    loaded = {n: _bytes(t, unpacked=unpacked) for n, t in tensors.items() if not _NOT_LOADED.search(n)}
    per_layer = _main_stack(loaded)
    per_token = _main_stack(_for_a_token(loaded, text))
    layers = _layer_count(text, per_layer, name)
    rest = {n: size for n, size in loaded.items() if not _LAYER.search(n)}
    heads = sum(size for n, size in rest.items() if _HEAD.search(n))
    tied = text.get("tie_word_embeddings") is True or heads == 0
    norms = sum(size for n, size in rest.items() if _NORM.search(n) and not _HEAD.search(n))
    try:
        cache, step = rough_size(text), step_size(text)
        file_bytes = tokenizer_file_bytes or _WORD_BYTES * max(0, first(text, "vocab_size"))
        on_each = {name: size for name, size in loaded.items() if is_whole(name)}  # rank
        whole = sum(size for layer, size in _main_stack(on_each).items() if layer < layers)
        sharding = sharding_of(config, layers, whole)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadModel(f"config.json in {name} has a setting that makes no sense: {error}.", OTHER_VERSION) from error
    return Layout(
        layers=layers,
        layer_bytes=tuple(per_layer.get(i, 0) for i in range(layers)),
        token_bytes=tuple(per_token.get(i, 0) for i in range(layers)),
        embed_bytes=sum(rest.values()) - heads - norms,
        output_bytes=norms + (0 if tied else heads),
        tied=tied,
        caches=(cache,) * layers,
        step=step,
        sharding=sharding,
        tokenizer_bytes=int(_TOKENIZER_PROCESSES * (_PROCESS_BYTES + _PER_FILE_BYTE * file_bytes)),
    )


def layer_of(tensor: str) -> int | None:
    """Layer number in a tensor's name, or None."""
    match = _LAYER.search(tensor)
    return int(match[2]) if match and len(match[2]) <= _DIGITS else None


def _is_unpacked(config: dict[str, Any]) -> bool:
    """Whether mlx-lm converts 8-bit floats to bfloat16: all except blocks of 32 by 32, which MLX supports."""
    settings = config.get("quantization_config")
    if "quantization" in config or not isinstance(settings, dict) or settings.get("quant_method") != "fp8":
        return False
    return (settings.get("scale_fmt"), settings.get("weight_block_size")) != ("ue8m0", [32, 32])


def _bytes(tensor: Tensor, *, unpacked: bool) -> int:
    return 2 * tensor.nbytes if unpacked and tensor.dtype == "F8_E4M3" else tensor.nbytes


def _main_stack(loaded: Mapping[str, int]) -> dict[int, int]:
    """Layer number -> bytes of the heaviest stack of numbered layers."""
    stacks: dict[str, dict[int, int]] = {}
    for name, size in loaded.items():
        if match := _LAYER.search(name):
            stack = stacks.setdefault(name[: match.start(2)], {})
            if len(match[2]) > _DIGITS:
                raise BadModel(f"There is no layer of such a number: {name!r:.80}.", OTHER_VERSION)
            stack[int(match[2])] = stack.get(int(match[2]), 0) + size
    prefix = max(stacks, key=lambda prefix: sum(stacks[prefix].values()), default="")
    main = stacks.get(prefix, {})
    # layers without keys of their own are numbered separately, after the others
    behind = stacks.get(prefix.removesuffix("layers.") + "kv_reuse_layers.", {})
    return main | {max(main) + 1 + number: size for number, size in behind.items()}


def _for_a_token(loaded: Mapping[str, int], text: dict[str, Any]) -> Mapping[str, int]:
    """`loaded` with only the experts that a token passes, or all if the config doesn't give their number."""
    every, passed = (next((n for key in keys if _is_whole(n := text.get(key))), 0) for keys in _EXPERT_COUNTS)
    if not 0 < passed < every:
        return loaded
    return {name: size * passed // every if _EXPERTS.search(name) else size for name, size in loaded.items()}


def _is_whole(value: Any) -> TypeGuard[int]:
    return type(value) is int  # excludes bool


def _layer_count(text: dict[str, Any], per_layer: Mapping[int, int], name: str) -> int:
    counts = [n for key in _LAYER_COUNTS if _is_whole(n := text.get(key))]
    # layers after the configured ones are multi-token-prediction heads, which mlx-lm drops
    layers = counts[0] if counts else max(per_layer, default=-1) + 1
    if layers < 1 or layers > 10_000 or not per_layer:
        raise BadModel(f"{name} holds no layers.", OTHER_VERSION)
    if max(per_layer) + 1 < layers:
        raise BadModel(f"{name} is incomplete: config.json says {layers} layers, its files end with {max(per_layer)}.")
    return layers
