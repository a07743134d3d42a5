"""A model's folder next to a good one: it can be used or says why not, and hides nothing."""

from __future__ import annotations

import json
import struct
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from core.models.files.catalog import Catalog, ModelEntry
from core.node.base.node_message import to_frame
from core.node.disks.messages import Holds
from core.node.disks.model_inventory import holds_of
from core.plan.stage_sizes import StageSizes
from tests.fuzz.target import Target
from tests.support.node_messages import from_frame

_WEIGHTS = "model.safetensors"
_CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 1,
    "hidden_size": 4,
    "num_attention_heads": 1,
    "max_position_embeddings": 4096,
    "rope_scaling": {"factor": 2.0, "original_max_position_embeddings": 4096},
    "quantization": {"bits": 4, "group_size": 32, "mode": "affine"},
}
_TENSORS: dict[str, Any] = {
    "model.embed_tokens.weight": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]},
    "model.layers.0.mlp.weight": {"dtype": "BF16", "shape": [4, 4], "data_offsets": [64, 96]},
}


@cache
def _root() -> tuple[Path, tempfile.TemporaryDirectory[str]]:
    held = tempfile.TemporaryDirectory(prefix="mc-fuzz-")
    root = Path(held.name)
    for name in ("bad", "good"):
        (root / name).mkdir()
        (root / name / "tokenizer.json").write_bytes(b"{}")
    _write(root / "good", _json(_CONFIG), _json(_TENSORS))
    return root, held


def _write(directory: Path, config: bytes, header: bytes) -> None:
    (directory / "config.json").write_bytes(config)
    (directory / _WEIGHTS).write_bytes(struct.pack("<Q", len(header)) + header + bytes(96))


def attack(data: bytes) -> None:
    """Write bytes as one of the two files of an otherwise good model; the first byte chooses it."""
    which, said = data[:1], data[1:]
    root, _ = _root()
    config, header = (said, _json(_TENSORS)) if which == b"c" else (_json(_CONFIG), said)
    _write(root / "bad", config, header)
    catalog = Catalog([root])
    found = catalog.survey()
    assert any(isinstance(one, ModelEntry) and one.name == "good" for one in found), found
    assert len(found) == 2
    msgspec.json.encode(found)
    assert isinstance(from_frame(*to_frame(holds_of(found))), Holds)
    for one in found:
        if isinstance(one, ModelEntry):
            layout = catalog.layout(Path(one.path))
            assert 0 <= StageSizes(layout, None, 1 << 28, None).kv_bytes(range(layout.layers)) < 1 << 53


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


_HUGE = [10**400, -(10**400), 10**19, 1.7e308, 2**53, -1, 0, 1e-300]
_ANY: Any = st.recursive(
    st.one_of(st.sampled_from(_HUGE), st.none(), st.booleans(), st.floats(), st.text(max_size=6)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from([*_CONFIG, "bits"]), inner)),
    max_leaves=6,
)
_KEYS = [*_CONFIG, "head_dim", "num_key_value_heads", "num_kv_heads", "kv_lora_rank", "text_config", "num_experts"]
_KEYS += ["num_experts_per_tok", "quantization_config", "rope_parameters", "tie_word_embeddings", "torch_dtype"]
_NAMES = st.one_of(
    st.sampled_from(
        [*_TENSORS, "model.layers." + "9" * 5000 + ".w", "model.layers.99999.w", "\udc80", "lm_head.weight"]
    ),
    st.text(max_size=6),
)
_TENSOR = st.one_of(st.sampled_from([*_TENSORS.values(), {"dtype": "U32", "shape": [], "data_offsets": [0, 4]}]), _ANY)


@given(st.dictionaries(st.sampled_from(_KEYS), _ANY, max_size=3), st.dictionaries(_NAMES, _TENSOR, max_size=3))
def shaped(settings: dict[str, Any], tensors: dict[str, Any]) -> None:
    """Any value for any setting, any name and any description for a tensor."""
    attack(b"c" + _json(_CONFIG | settings))
    attack(b"w" + _json(_TENSORS | tensors))


def target() -> Target:
    """The two files of a good model."""
    return Target("folder", attack, [b"c" + _json(_CONFIG), b"w" + _json(_TENSORS)], shaped)
