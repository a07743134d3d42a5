"""Short facts for the list of models: quantisation and context length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeGuard

from core.models.files.safetensors import Tensor
from core.models.files.shape_settings import text_config
from core.settings import DEFAULT_CONTEXT
from core.text import clean_name

MAX_CONTEXT: Final = 1 << 28

_CONTEXTS: Final = (
    "max_position_embeddings", "model_max_length", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length",
    "seq_length", "max_context_length", "context_length", "block_size",
)  # fmt: skip
_DTYPES: Final = {"BF16": "bfloat16", "F16": "float16", "F32": "float32", "F8_E4M3": "fp8", "F8_E5M2": "fp8"}
# quantisation modes of mlx other than plain integers
_MODES: Final = ("mxfp4", "mxfp8", "nvfp4")
# share of the weights below which a format, such as that of an expert router, isn't shown
_SHARE: Final = 0.02


def context_of(config: dict[str, Any]) -> int:
    """Maximum context in tokens, from training or rope scaling."""
    text = text_config(config)
    lengths = [n for key in _CONTEXTS if _is_length(n := text.get(key))]
    for key in ("rope_scaling", "rope_parameters"):
        if isinstance(rope := text.get(key), dict):
            factor, original = rope.get("factor"), rope.get("original_max_position_embeddings")
            if isinstance(factor, int | float) and _is_length(original) and 1 <= factor <= MAX_CONTEXT:
                lengths.append(min(int(factor * original), MAX_CONTEXT))
    return max(lengths, default=DEFAULT_CONTEXT)


def _is_length(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 < value <= MAX_CONTEXT


def quantization_of(config: dict[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """ "4-bit", "mxfp4", "4–8-bit" if layers differ, the name of another method, or the dtype of most weights."""
    for source in (config, text_config(config)):
        if isinstance(settings := source.get("quantization"), dict) and (words := _by_mlx(settings, tensors)):
            return words
        if isinstance(settings := source.get("quantization_config"), dict) and (words := _by_others(settings)):
            return words
    weights: Counter[str] = Counter()
    for tensor in tensors.values():
        weights[tensor.dtype] += tensor.nbytes
    heaviest = weights.most_common(1)[0][0]
    return _DTYPES.get(heaviest, heaviest.lower())


def _by_mlx(settings: dict[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """From mlx's `quantization`: bits and mode for all layers, with exceptions by layer path."""
    if not _is_bits(settings.get("bits")):
        return ""
    # unpacked tensors have the dtype of the activations
    packed = {n.rpartition(".")[0]: t.nbytes for n, t in tensors.items() if t.dtype in ("U32", "U8")}
    weights: Counter[tuple[int, str]] = Counter()
    for path, nbytes in packed.items():
        own = settings.get(path)
        format = own if isinstance(own, dict) and _is_bits(own.get("bits")) else settings
        weights[format["bits"], str(format.get("mode", "affine"))] += nbytes
    formats = [f for f, nbytes in weights.items() if nbytes >= _SHARE * weights.total()] or [
        (settings["bits"], str(settings.get("mode", "affine")))
    ]
    if len(formats) == 1 and formats[0][1] in _MODES:
        return formats[0][1]
    bits = sorted({bits for bits, _ in formats})
    return f"{bits[0]}-bit" if len(bits) == 1 else f"{bits[0]}–{bits[-1]}-bit"


def _by_others(settings: dict[str, Any]) -> str:
    """From the `quantization_config` of other tools, which mlx-lm converts or refuses when loading."""
    method = str(settings.get("quant_method", ""))
    if method in _MODES:
        return method
    bits = [n for n in _bits_anywhere(settings) if _is_bits(n)]
    if bits:
        return f"{bits[0]}-bit"
    return (clean_name(str(settings.get("quant_algo") or method)) or "").lower()


def _bits_anywhere(settings: dict[str, Any]) -> Iterator[Any]:
    yield settings.get("bits")
    groups = settings.get("config_groups")
    for group in groups.values() if isinstance(groups, dict) else ():
        if isinstance(group, dict) and isinstance(group.get("weights"), dict):
            yield group["weights"].get("num_bits")


def _is_bits(value: Any) -> bool:
    return type(value) is int and 1 <= value <= 16
