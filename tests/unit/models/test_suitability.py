"""Models that can't run here are refused by their small files, with a message that names the reason and the remedy."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from core.errors import UnsupportedModel
from core.models.files.catalog import Catalog, ModelEntry
from core.models.files.model_folder import read_folder
from core.models.files.model_settings import ModelSettings, settings_of
from core.models.files.safetensors import INDEX_NAME
from core.models.files.suitability import ADAPTER, NO_TEMPLATE, STALE_INDEX, check_suitable, notes_on
from core.models.slicing.building import build
from core.requests.plans import PreviewRequest
from core.settings import Home
from tests.support.maker import make_model
from tests.support.models import fingerprint, read_entry, scan
from tui.cli.what_if import imagined_plan

TOKENIZER = frozenset({"config.json", "tokenizer.json", "model.safetensors"})


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model") / "little-llama"
    make_model(directory, "llama", layers=2, files=1)
    (directory / INDEX_NAME).unlink()
    (directory / "model-00001-of-00001.safetensors").rename(directory / "model.safetensors")
    return directory


@pytest.fixture
def model(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "little-llama"))


def settings(
    config: Mapping[str, object], files: frozenset[str] = TOKENIZER, **contents: Mapping[str, object]
) -> ModelSettings:
    found = {"config.json": {"model_type": "llama", **config}, **{f"{n}.json": c for n, c in contents.items()}}
    return settings_of("acme/x", {name: json.dumps(value).encode() for name, value in found.items()}, files)


def quantised(method: str, **more: object) -> dict[str, object]:
    return {"quantization_config": {"quant_method": method, **more}}


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"quantization": {"bits": 4}, **quantised("anything")},
        quantised("mxfp4"),
        quantised("awq", bits=4),
        quantised("compressed-tensors", format="nvfp4-pack-quantized"),
        quantised("modelopt", quant_algo="NVFP4"),
        quantised("fp8", scale_fmt="ue8m0", weight_block_size=[32, 32]),
        {"model_type": "deepseek_v3", **quantised("fp8")},
        {"model_type": "kimi_k2", **quantised("fp8")},
        {"model_type": "mistral3", "text_config": quantised("fp8")},
    ],
)
def test_forms_that_mlx_lm_reads(config: dict[str, object]) -> None:
    check_suitable(settings(config))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (quantised("fp8", weight_block_size=[128, 128]), "fp8"),
        (quantised("bitsandbytes", load_in_4bit=True), "bitsandbytes"),
        (quantised("hqq"), "hqq"),
        (quantised("gptq", bits=8), r"gptq \(8 bits\)"),
        (quantised("compressed-tensors", format="float-quantized"), r"compressed-tensors \(float-quantized\)"),
        ({"text_config": quantised("modelopt", quant_algo="FP8")}, r"modelopt \(FP8\)"),
    ],
)
def test_forms_that_mlx_lm_does_not_read_are_named(config: dict[str, object], words: str) -> None:
    with pytest.raises(UnsupportedModel, match=f"acme/x is quantised as {words}") as caught:
        check_suitable(settings(config))
    assert "mlx-community" in caught.value.fix


def test_a_reordered_gptq_model_is_known_by_its_index() -> None:
    index = {"model.safetensors.index": {"weight_map": {"model.layers.0.mlp.up_proj.g_idx": "model.safetensors"}}}
    with pytest.raises(UnsupportedModel, match="g_idx"):
        check_suitable(settings(quantised("gptq", bits=4), TOKENIZER, **index))


@pytest.mark.parametrize("said", [{"indexer_types": ["full", "shared"]}, {"index_topk_freq": 4}])
def test_layers_without_an_indexer_of_their_own_are_refused(said: dict[str, object]) -> None:
    """GLM-5.2 and 5.3 have them, GLM-5 and 5.1 don't."""
    with pytest.raises(UnsupportedModel, match="Layers of acme/x share an indexer"):
        check_suitable(settings({"model_type": "glm_moe_dsa", **said}))
    for same in ({}, {"indexer_types": ["full", "full"]}, {"index_topk_freq": 1}):
        check_suitable(settings({"model_type": "glm_moe_dsa", **same}))


def test_a_model_without_a_chat_template_is_noted() -> None:
    assert notes_on(settings({})) == (NO_TEMPLATE,)
    assert notes_on(settings({"model_type": "muse_spark"})) == ()
    assert notes_on(settings({}, tokenizer_config={"chat_template": "{{ x }}"})) == ()
    assert notes_on(settings({}, TOKENIZER | {"chat_template.json"})) == ()


def test_an_adapter_and_an_index_that_do_not_count_are_noted(model: Path) -> None:
    old = {"weight_map": {"model.embed_tokens.weight": "model-00001-of-00002.safetensors"}}
    (model / INDEX_NAME).write_text(json.dumps(old))
    (model / "adapter_config.json").write_text("{}")
    assert read_entry(model).notes == (STALE_INDEX, ADAPTER)


async def test_a_plan_over_imagined_macs_tells_the_notes_on_its_model(model: Path, tmp_path: Path) -> None:
    make_model(tmp_path / "base", "llama", layers=2, chat=False)
    request = PreviewRequest(model=str(tmp_path / "base"), context=64)
    preview = await imagined_plan(Home(tmp_path / "home"), request, (64.0, 32.0))
    assert preview.plan
    assert NO_TEMPLATE in preview.plan.notes


def test_an_index_left_over_from_another_form_does_not_count(model: Path) -> None:
    before = fingerprint(model)
    old = {"weight_map": {"model.embed_tokens.weight": "model-00001-of-00002.safetensors"}}
    (model / INDEX_NAME).write_text(json.dumps(old))
    assert read_entry(model).fingerprint == fingerprint(model) == before


def test_the_folders_of_lm_studio_are_found_by_publisher_and_name(model: Path, tmp_path: Path) -> None:
    root = tmp_path / "models"
    for place in ("acme/little", ".partial/begun"):
        shutil.copytree(model, root / place)
    (root / "notes").mkdir()
    assert [entry.name for entry in scan([root])] == ["acme/little"]
    assert Catalog([root]).find("acme/little") == Catalog([root]).find("little")
    make_model(root / "other" / "little", "llama", layers=3)
    with pytest.raises(UnsupportedModel, match="a folder of models, such as acme/little"):
        read_entry(root)


def test_a_path_may_look_like_a_pattern(model: Path, tmp_path: Path) -> None:
    place = Path(shutil.copytree(model, tmp_path / "Models [ext]" / "tiny*"))
    assert isinstance(read_entry(place), ModelEntry)
    build(read_folder(place))
