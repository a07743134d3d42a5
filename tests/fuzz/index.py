"""The safetensors header and index of a model directory: no offset and no name leads out of it."""

from __future__ import annotations

import json
import struct
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from core.errors import BadModel, ModelNotFound
from core.models.files.model_folder import read_folder
from core.models.files.safetensors import INDEX_NAME
from tests.fuzz.target import Target

_FILE = "model-00001-of-00001.safetensors"
_CONFIG = json.dumps({"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 4, "num_attention_heads": 1})
_HEADER: dict[str, Any] = {
    "__metadata__": {"format": "mlx"},
    "model.embed_tokens.weight": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]},
    "model.layers.0.mlp.weight": {"dtype": "BF16", "shape": [4, 4], "data_offsets": [64, 96]},
}
_INDEX = {"metadata": {"total_size": 96}, "weight_map": {n: _FILE for n in _HEADER if n.startswith("model")}}


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="mc-fuzz-")


def _directory() -> Path:
    directory = Path(_folder().name) / "model"
    directory.mkdir(exist_ok=True)
    return directory


def attack(data: bytes) -> None:
    """Write bytes as a file of an otherwise good model; the first byte chooses it."""
    which, said = data[:1], data[1:]
    files = {
        "config.json": _CONFIG.encode(),
        INDEX_NAME: json.dumps(_INDEX).encode(),
        _FILE: _file(json.dumps(_HEADER).encode()),
    }
    files[{b"i": INDEX_NAME, b"c": "config.json"}.get(which, _FILE)] = said
    directory = _directory()
    for name, content in files.items():
        (directory / name).write_bytes(content)
    try:
        headers = read_folder(directory).headers
        size = len(files[_FILE])
        for header in headers.values():
            assert all(t.begin >= 0 and header.nbytes + t.begin + t.nbytes <= size for t in header.tensors.values())
        read_folder(directory).layout()
    except (BadModel, ModelNotFound):
        return


def _file(header: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header + bytes(96)


_NUMBERS = st.one_of(st.sampled_from([-1, 0, 1, 4, 64, 96, 97, 2**31, 2**63, 2**64, 10**30]), st.floats(), st.text())
_TENSOR = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "BF16", "U8", "F4", "I64", "", "\x1b[2J"]),
        "shape": st.lists(_NUMBERS, max_size=4),
        "data_offsets": st.lists(_NUMBERS, max_size=3),
    }
)
_PATHS = st.sampled_from([_FILE, "../../etc/passwd", "/etc/passwd", "a\0b", "..\\x", "", ".", "model.bin", "x" * 5000])


@given(
    st.dictionaries(st.sampled_from([*_HEADER, "lm_head.weight", "../x", ""]), st.one_of(_TENSOR, _NUMBERS)),
    st.one_of(st.none(), st.dictionaries(st.text(max_size=9), st.one_of(_PATHS, _NUMBERS), max_size=4)),
)
def shaped(tensors: dict[str, Any], names: dict[str, Any] | None) -> None:
    """Tensors with any shape and any place, and names that lead anywhere."""
    if names is None:
        attack(b"s" + _file(json.dumps(tensors).encode()))
    else:
        attack(b"i" + json.dumps({"weight_map": names}).encode())


def target() -> Target:
    """The three files of a good model."""
    seeds = [b"s" + _file(json.dumps(_HEADER).encode()), b"i" + json.dumps(_INDEX).encode(), b"c" + _CONFIG.encode()]
    return Target("index", attack, seeds, shaped)
