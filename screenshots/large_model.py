"""A model of 70 billion parameters, reduced to the parts that plans need: configuration and headers of its weights.

The files have the real length without content, so they take no room on a disk that supports sparse files.
"""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Final

from core.demo import DEMO_MODEL

NAME: Final = "Llama-3.3-70B-Instruct-8bit"
LAYERS: Final = 80
HIDDEN: Final = 8192
_INNER: Final = 28672
_KV: Final = 8 * 128
_WORDS: Final = 128_256
_LAYERS_A_FILE: Final = 10
_BITS: Final = 8
_GROUP: Final = 64
_BYTES: Final = {"U32": 4, "BF16": 2}
_CONFIG: Final = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": HIDDEN,
    "intermediate_size": _INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": _WORDS,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "quantization": {"group_size": _GROUP, "bits": _BITS},
}

Shapes = dict[str, tuple[str, tuple[int, ...]]]


def make(folder: Path) -> Path:
    """Make the model in its own folder inside `folder`."""
    directory = folder / NAME
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(_CONFIG))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(DEMO_MODEL / name, directory)
    parts = list(_parts())
    index: dict[str, str] = {}
    for number, tensors in enumerate(parts, 1):
        name = f"model-{number:05}-of-{len(parts):05}.safetensors"
        _write(directory / name, tensors)
        index |= dict.fromkeys(tensors, name)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return directory


def _parts() -> Iterator[Shapes]:
    for first in range(0, LAYERS, _LAYERS_A_FILE):
        yield {key: shape for layer in range(first, first + _LAYERS_A_FILE) for key, shape in _layer(layer).items()}
    norm: Shapes = {"model.norm.weight": ("BF16", (HIDDEN,))}
    yield {**_matrix("model.embed_tokens", _WORDS, HIDDEN), **norm, **_matrix("lm_head", _WORDS, HIDDEN)}


def _layer(number: int) -> Shapes:
    at = f"model.layers.{number}"
    sizes = {
        **{"self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.k_proj": (_KV, HIDDEN), "self_attn.v_proj": (_KV, HIDDEN)},
        **{"self_attn.o_proj": (HIDDEN, HIDDEN), "mlp.gate_proj": (_INNER, HIDDEN), "mlp.up_proj": (_INNER, HIDDEN)},
        "mlp.down_proj": (HIDDEN, _INNER),
    }
    shapes = {
        key: shape for name, (out, into) in sizes.items() for key, shape in _matrix(f"{at}.{name}", out, into).items()
    }
    norms = (f"{at}.{name}.weight" for name in ("input_layernorm", "post_attention_layernorm"))
    return {**shapes, **dict.fromkeys(norms, ("BF16", (HIDDEN,)))}


def _matrix(name: str, out: int, into: int) -> Shapes:
    """A quantised matrix as mlx stores it: the numbers packed into words, a scale and a bias for each group."""
    groups = ("BF16", (out, into // _GROUP))
    return {f"{name}.weight": ("U32", (out, into * _BITS // 32)), f"{name}.scales": groups, f"{name}.biases": groups}


def _write(file: Path, tensors: Shapes) -> None:
    header, at = {}, 0
    for name, (dtype, shape) in tensors.items():
        size = prod(shape) * _BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": (at, at + size)}
        at += size
    words = json.dumps(header).encode()
    with file.open("wb") as out:
        out.write(struct.pack("<Q", len(words)) + words)
        out.truncate(8 + len(words) + at)
