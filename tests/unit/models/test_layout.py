"""Bytes of weights, computed from headers and config, equal the bytes of files."""

from __future__ import annotations

from copy import deepcopy
from inspect import signature
from pathlib import Path
from typing import Any

import mlx_lm.utils as mlx_utils
import pytest
from mlx.utils import tree_flatten

from core.errors import BadModel
from core.models.files.layout import layout_of
from core.models.files.model_folder import read_folder
from core.models.files.safetensors import Tensor
from tests.support import atlas
from tests.support.made_configs import FAMILIES
from tests.support.maker import make_model


@pytest.fixture(scope="module", params=FAMILIES)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model")
    make_model(directory, request.param, layers=5)
    return directory


def test_layout_bytes_equal_file_bytes(made: Path) -> None:
    layout = read_folder(made).layout()
    assert layout.layers == len(layout.layer_bytes) == 5
    assert layout.total_bytes == sum(t.nbytes for t in read_folder(made).tensors.values())
    halves = [layout.stage_bytes(0, 2, embed=True, output=False), layout.stage_bytes(2, 5, embed=False, output=True)]
    assert sum(halves) == layout.total_bytes + (layout.embed_bytes if layout.tied else 0)


def test_two_processes_of_the_tokenizer_are_counted(made: Path) -> None:
    file_bytes = (made / "tokenizer.json").stat().st_size
    assert read_folder(made).layout().tokenizer_bytes == int(2 * (75e6 + 10.5 * file_bytes))


def test_a_token_needs_all_but_the_experts_that_it_does_not_pass(made: Path) -> None:
    """Each of these families passes two of its four."""
    layout = read_folder(made).layout()
    experts = sum(t.nbytes for n, t in read_folder(made).tensors.items() if ".switch_mlp." in n or ".experts." in n)
    assert sum(layout.layer_bytes) - sum(layout.token_bytes) == experts // 2
    ends = layout.output_bytes + layout.tied * layout.embed_bytes
    assert layout.read_bytes(0, 5, output=True) == sum(layout.token_bytes) + ends
    assert layout.read_bytes(1, 3, output=False) == sum(layout.token_bytes[1:3])


def real_model(variant: str) -> tuple[dict[str, Any], Any]:
    """The settings that a family reads of its tiny configuration, and its model."""
    config = atlas.config_of(variant)
    model_class, args_class = mlx_utils._get_classes(config)
    known = {"attn_config", "model_type", *signature(args_class).parameters}
    # a setting unknown to the family would not be in its config.json
    config = {k: v for k, v in config.items() if k in known} if "text_config" not in config else config
    return deepcopy(config), model_class(args_class.from_dict(config))


@pytest.mark.slow
@pytest.mark.parametrize("variant", atlas.RUNNING)
def test_every_family_has_its_layers_and_its_bytes(variant: str) -> None:
    config, model = real_model(variant)
    weights = dict(tree_flatten(model.parameters()))
    found = {n: Tensor(dtype="F32", shape=tuple(a.shape), nbytes=a.nbytes) for n, a in weights.items()}
    layout = layout_of({**config, "dtype": "float32"}, found, variant)
    assert layout.layers == len(model.layers) == atlas.LAYERS
    assert all(layout.layer_bytes)
    assert layout.total_bytes == sum(a.nbytes for a in weights.values())


def tensors(*names: str) -> dict[str, Tensor]:
    return {name: Tensor(dtype="U8", shape=(size,), nbytes=size) for size, name in enumerate(names, 1)}


BASE: dict[str, Any] = {"model_type": "llama", "num_attention_heads": 4, "hidden_size": 64, "num_key_value_heads": 2}


def test_parts_that_are_not_loaded_weigh_nothing() -> None:
    found = tensors(
        "model.embed_tokens.weight",
        "model.layers.0.mlp.weight",
        "model.layers.1.mlp.weight",
        "model.layers.2.mtp_head.weight",
        "vision_tower.blocks.0.weight",
        "multi_modal_projector.weight",
        "model.norm.weight",
        "lm_head.weight",
    )
    layout = layout_of(BASE | {"num_hidden_layers": 2}, found, "x")
    assert (layout.embed_bytes, layout.layer_bytes, layout.output_bytes, layout.tied) == (1, (2, 3), 15, False)


def test_a_tied_head_brings_its_copy_of_the_embedding() -> None:
    layout = layout_of(BASE, tensors("transformer.wte.weight", "transformer.h.0.w", "transformer.ln_f.weight"), "x")
    assert layout.tied
    assert layout.stage_bytes(0, 1, embed=True, output=True) == 6
    assert layout.stage_bytes(0, 1, embed=False, output=True) == 6
    assert layout.stage_bytes(0, 1, embed=False, output=False) == 2


def test_a_model_without_layers_is_refused() -> None:
    with pytest.raises(BadModel, match="no layers"):
        layout_of(BASE, tensors("model.norm.weight"), "x")


def test_layers_that_reuse_keys_come_behind_the_others() -> None:
    found = tensors("model.layers.0.w", "model.layers.1.w", "model.kv_reuse_layers.0.w", "model.embed.w")
    afm7 = {"model_type": "afm7", "num_layers": 3, "num_kv_reuse_layers": 1}
    layout = layout_of(BASE | afm7, found, "x")
    assert (layout.layer_bytes, layout.embed_bytes) == ((1, 2, 3), 4)


def test_weights_of_8_bit_floats_are_counted_as_what_they_become() -> None:
    found = {"model.layers.0.w": Tensor(dtype="F8_E4M3", shape=(8,), nbytes=8)}
    for settings, size in [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 16),
        ({"quant_method": "fp8", "weight_block_size": [32, 32], "scale_fmt": "ue8m0"}, 8),
        ({"quant_method": "mxfp8"}, 8),
    ]:
        assert layout_of(BASE | {"quantization_config": settings}, found, "x").layer_bytes == (size,)
