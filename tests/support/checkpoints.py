"""Rewrites made models as other checkpoints of the same family, and empties files of their bytes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx_lm.utils as mlx_utils

from core.models.files.model_folder import read_folder
from core.models.files.parts import Part
from core.models.files.safetensors import INDEX_NAME

Weights = dict[str, mx.array]


def change_config(directory: Path, **changes: object) -> None:
    config = json.loads((directory / "config.json").read_text()) | changes
    (directory / "config.json").write_text(json.dumps(config))


def read_weights(directory: Path) -> Weights:
    weights: Weights = {}
    for file in sorted(directory.glob("model*.safetensors")):
        found: Any = mx.load(str(file))
        weights |= found
    mx.eval(weights)
    return weights


def write_weights(directory: Path, weights: Weights, files: int = 3) -> None:
    """Write the tensors in the order given, in files of about the same size."""
    for file in directory.glob("model*.safetensors"):
        file.unlink()
    total = sum(array.nbytes for array in weights.values())
    shards: dict[int, Weights] = {}
    filled = 0
    for name, array in weights.items():
        shards.setdefault(filled * files // total, {})[name] = array
        filled += array.nbytes
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards.values(), 1):
        home = f"model-{number:05}-of-{len(shards):05}.safetensors"
        mx.save_safetensors(str(directory / home), shard)
        weight_map |= dict.fromkeys(shard, home)
    (directory / INDEX_NAME).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def one_tensor_per_expert(directory: Path) -> None:
    """Checkpoint layout of Hugging Face's qwen3_moe: `sanitize` stacks the experts."""
    original: Weights = {}
    for name, array in read_weights(directory).items():
        before, stacked, after = name.partition("switch_mlp.")
        rows = {f"{before}experts.{e}.{after}": row for e, row in enumerate(array)} if stacked else {name: array}
        original |= rows
    write_weights(directory, original)


def blocks_of_mxfp4(directory: Path) -> None:
    """Layout of OpenAI's gpt_oss: gate and up in one tensor, in alternate rows, in four bits; random numbers."""
    original: Weights = {}
    for name, array in read_weights(directory).items():
        before, experts, kind = name.partition(".experts.")
        if not experts:
            original[name] = array
        elif not kind.startswith("up_proj"):
            # the pair has the shape of the gate with twice the rows
            twice = 2 if kind.startswith("gate_proj") else 1
            fused = before + experts + kind.partition(".")[0].replace("gate_proj", "gate_up_proj")
            original |= _blocks(fused, mx.concatenate([array] * twice, 1))
    write_weights(directory, original)
    change_config(directory, quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": []})


def _blocks(name: str, array: mx.array) -> Weights:
    if array.ndim == 2:
        return {f"{name}_bias": array}
    groups = (*array.shape[:2], array.shape[2] // 32)
    bits = mx.random.randint(0, 1 << 32, (*groups, 4), mx.uint32, key=mx.random.key(len(name)))
    return {f"{name}_blocks": bits.view(mx.uint8), f"{name}_scales": mx.full(groups, 121, mx.uint8)}


def fp8_with_fused_keys(directory: Path) -> None:
    """Layout of DeepSeek's deepseek_v3: fp8 blocks with scales, one tensor per expert, fused keys and values."""
    one_tensor_per_expert(directory)
    original: Weights = {}
    for name, array in read_weights(directory).items():
        if name.endswith("embed_q.weight"):
            values = name.replace("embed_q", "unembed_out")
            fused = mx.concatenate([array.swapaxes(-1, -2), read_weights(directory)[values]], 1)
            original |= _fp8(name.replace("embed_q", "kv_b_proj"), fused.flatten(0, 1))
        elif name.endswith("_proj.weight"):
            original |= _fp8(name, array)
        elif not name.endswith("unembed_out.weight"):
            original[name] = array
    mx.eval(original)
    write_weights(directory, original)


def _fp8(name: str, array: mx.array) -> Weights:
    scales = mx.full([-(-n // 128) for n in array.shape], 0.5)
    return {name: mx.to_fp8(array * 2), name.replace(".weight", ".weight_scale_inv"): scales}


def packed_by_awq(directory: Path) -> None:
    """Pack a model's projections as AutoAWQ does, with random numbers."""
    packed: Weights = {}
    for name, array in read_weights(directory).items():
        if name.endswith("_proj.weight"):
            (rows, columns), path = array.shape, name.removesuffix("weight")
            groups = columns // 32
            packed[f"{path}qweight"] = mx.random.randint(0, 1 << 30, (columns, rows // 8), key=mx.random.key(1))
            packed[f"{path}qzeros"] = mx.random.randint(0, 1 << 30, (groups, rows // 8), key=mx.random.key(2))
            packed[f"{path}scales"] = mx.random.uniform(0.001, 0.01, (groups, rows), key=mx.random.key(3))
        else:
            packed[name] = array
    write_weights(directory, packed)
    change_config(directory, quantization_config={"quant_method": "awq", "bits": 4, "group_size": 32})


def mixed_bits(directory: Path) -> None:
    """Quantise by a recipe as `mlx_lm.convert` does: four bits, eight in layers 0, 3, ... and none in 1, 4, ..."""

    def wanted(path: str, module: nn.Module) -> bool | dict[str, Any]:
        numbers = [int(word) for word in path.split(".") if word.isdigit()]
        recipe: tuple[bool | dict[str, Any], ...] = ({"group_size": 32, "bits": 8}, False, True)
        return recipe[numbers[0] % 3] if numbers else True

    model, config = mlx_utils.load_model(directory)
    model, config = mlx_utils.quantize_model(model, config, 32, 4, quant_predicate=wanted)
    weights = dict(mlx_utils.tree_flatten(model.parameters()))
    mx.eval(weights)
    write_weights(directory, weights)
    mlx_utils.save_config(config, directory / "config.json")


REWRITES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "experts apart": ("qwen3_moe", one_tensor_per_expert),
    "mxfp4 blocks": ("gpt_oss", blocks_of_mxfp4),
    "fp8": ("deepseek_v3", fp8_with_fused_keys),
    "awq": ("llama", packed_by_awq),
    "mixed bits": ("llama", mixed_bits),
}


def hollow(source: Path, target: Path) -> None:
    """Copy a model; its weight files keep their length and header, and the rest is zeros."""
    target.mkdir()
    headers = read_folder(source).headers
    for file in source.iterdir():
        if file.name in headers:
            (target / file.name).write_bytes(file.read_bytes()[: headers[file.name].nbytes])
            os.truncate(target / file.name, file.stat().st_size)
        else:
            (target / file.name).write_bytes(file.read_bytes())


def copy_part(source: Path, target: Path, part: Part) -> None:
    with (source / part.file).open("rb") as there, (target / part.file).open("r+b") as here:
        there.seek(part.begin)
        here.seek(part.begin)
        here.write(there.read(part.nbytes))
