"""Makes tiny models of many families with random weights: real files, meaningless answers.

Equal arguments make equal bytes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from core.models.files.safetensors import INDEX_NAME
from core.models.made.maker import DTYPES, EOS, SPECIALS, random_model, write_tokenizer
from tests.support.made_configs import FAMILIES, Shape

_GROUP: Final = 32
_NAMES: Final = {mx.float32: "F32", mx.bfloat16: "BF16", mx.float16: "F16", mx.uint32: "U32", mx.uint8: "U8"}


def make_model(
    directory: Path,
    family: str,
    *,
    seed: int = 0,
    dtype: str = "float32",
    bits: int | None = None,
    files: int = 3,
    chat: bool = True,
    **sizes: int,
) -> None:
    """Write a model into `directory` (created if missing): config, tokenizer, `files` safetensors and their index.

    `sizes` are fields of `Shape`. `bits` quantises in groups of 32 with scales of `dtype`. Special tokens have zeros in
    an untied head, so answers never end by themselves.
    """
    shape = Shape(**sizes)
    directory.mkdir(parents=True, exist_ok=True)
    write_tokenizer(directory, shape.vocab)
    if not chat:
        tokenizer = directory / "tokenizer_config.json"
        settings = json.loads(tokenizer.read_text("utf-8"))
        del settings["chat_template"]
        tokenizer.write_text(json.dumps(settings, indent=1), "utf-8")
    config = FAMILIES[family](shape)
    eos = SPECIALS.index(EOS)
    config |= {"eos_token_id": eos, "dtype": dtype}
    model = random_model(config, seed, DTYPES[dtype])
    if bits:
        config["quantization"] = _quantise(model, bits)
    write_weights(directory, model, files)
    (directory / "config.json").write_text(json.dumps(config, indent=1), "utf-8")
    (directory / "generation_config.json").write_text(json.dumps({"do_sample": False, "eos_token_id": eos}), "utf-8")


def _quantise(model: nn.Module, bits: int) -> dict[str, Any]:
    """Quantise in place; returns the `quantization` entry of the config."""

    def wanted(_: str, module: nn.Module) -> bool:
        return hasattr(module, "to_quantized") and module.weight.shape[-1] % _GROUP == 0

    nn.quantize(model, group_size=_GROUP, bits=bits, class_predicate=wanted)
    return {"group_size": _GROUP, "bits": bits, "mode": "affine"}


def write_weights(directory: Path, model: nn.Module, files: int) -> None:
    """Write the weights as `files` safetensors files with an index."""
    weights = _in_order(model)
    total = sum(array.nbytes for _, array in weights)
    parts: list[list[tuple[str, mx.array]]] = [[]]
    filled = 0
    for name, array in weights:
        if filled >= total * len(parts) / files and parts[-1]:
            parts.append([])
        parts[-1].append((name, array))
        filled += array.nbytes
    weight_map: dict[str, str] = {}
    for number, part in enumerate(parts, 1):
        file = f"model-{number:05}-of-{len(parts):05}.safetensors"
        weight_map |= {name: file for name, _ in part}
        _write_safetensors(directory / file, part)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (directory / INDEX_NAME).write_text(json.dumps(index, indent=1), "utf-8")


def _in_order(model: nn.Module) -> list[tuple[str, mx.array]]:
    """Parameters in checkpoint order: embedding, layers, norm, head."""
    layers = [f"{path}." for path, m in model.named_modules() for layer in model.layers if m is layer]

    def rank(item: tuple[int, tuple[str, mx.array]]) -> tuple[int, int]:
        position, (path, _) = item
        inside = any(path.startswith(layer) for layer in layers)
        return (1 if inside else 0 if "embed" in path else 2, position)

    return [item for _, item in sorted(enumerate(tree_flatten(model.parameters())), key=rank)]


def _write_safetensors(file: Path, tensors: list[tuple[str, mx.array]]) -> None:
    # mlx writes the header in hash table order, which differs between runs
    header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
    offset = 0
    for name, array in tensors:
        end = offset + array.nbytes
        header[name] = {"dtype": _NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for data in _data(tensors):
            f.write(data)


def _data(tensors: list[tuple[str, mx.array]]) -> Iterator[Any]:
    for _, array in tensors:
        raw: Any = mx.contiguous(array).reshape(-1).view(mx.uint8)
        yield memoryview(raw)
