"""Each refusal of a model names what is there, and advises a download only where it would bring other files."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from core.errors import BadModel, ModelError
from core.models.files.hub_files import HubModel
from core.models.files.hub_origin import HubOrigin
from core.models.files.safetensors import INDEX_NAME
from tests.support.maker import make_model
from tests.support.models import read_entry

WEIGHTS = "model-00001-of-00001.safetensors"
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n"
AGAIN = "download the model again"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model") / "tiny"
    make_model(directory, "llama", layers=2, files=1)
    return directory


def only(folder: Path, **files: str) -> None:
    shutil.rmtree(folder)
    folder.mkdir()
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content)


def configured(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(config))


def written(folder: Path, name: str, content: str) -> None:
    (folder / name).write_text(content)


def tokenized(folder: Path, *files: str) -> None:
    (folder / "tokenizer.json").unlink()
    for name in files:
        (folder / name).touch()


def linked(folder: Path) -> None:
    (folder.parent / "elsewhere.bin").touch()
    (folder / "tokenizer_config.json").unlink()
    (folder / "tokenizer_config.json").symlink_to(folder.parent / "elsewhere.bin")


def within(folder: Path, *folders: str) -> None:
    only(folder)
    for name in folders:
        (folder / name).mkdir(parents=True)
        if "/" in name:
            (folder / name / "config.json").write_text("{}")


def cut(folder: Path) -> None:
    os.truncate(folder / WEIGHTS, 5000)


def unlinked(folder: Path) -> None:
    (folder / WEIGHTS).unlink()


LORA = {"adapter_config__json": json.dumps({"base_model_name_or_path": "acme/base"}), "adapters__safetensors": ""}
BNB = {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}


@pytest.mark.parametrize(
    ("spoil", "what", "fix"),
    [
        (lambda folder: only(folder, **LORA), "is a LoRA adapter for acme/base", "Load acme/base itself"),
        (partial(only, x__gguf=""), "holds GGUF weights", "mlx-community"),
        (partial(only, consolidated__safetensors="", params__json="{}"), "in their maker's own form", "mlx-community"),
        (partial(only, model_index__json="{}"), "makes images", "another model"),
        (partial(only, model__onnx=""), "weights for ONNX", "mlx-community"),
        (only, "tiny is empty", AGAIN),
        (partial(only, model__safetensors=""), "has no config.json", "Copy it"),
        (lambda folder: within(folder, "blobs", "manifests"), "is Ollama's folder", "from the hub"),
        (
            lambda folder: within(folder, "acme/x", "acme/y"),
            "a folder of models, such as acme/x",
            "the folder of one model",
        ),
        (partial(written, name=WEIGHTS, content=POINTER), f"{WEIGHTS} is only a pointer", "git lfs pull"),
        (partial(written, name="tokenizer.json", content=POINTER), "tokenizer.json is only a pointer", "git lfs pull"),
        (partial(configured, model_type="whisper"), "does not know the architecture 'whisper'", "another model"),
        (partial(configured, model_type="bert"), "does not know the architecture 'bert'", "another model"),
        (partial(configured, model_type=None), "names no model_type", "in the form of transformers"),
        (partial(configured, model_file="x.py"), "brings its own code", "whose architecture mlx-lm knows"),
        (partial(configured, num_hidden_layers=10**6), "which makes no sense", "mlx-community"),
        (partial(configured, num_hidden_layers=9), "config.json says 9 layers", AGAIN),
        (lambda folder: configured(folder, **BNB), "is quantised as bitsandbytes", "mlx-community"),
        (tokenized, "has no tokenizer", "Copy tokenizer.json"),
        (lambda folder: tokenized(folder, "tekken.json"), "Mistral's own form", "mlx-community"),
        (lambda folder: tokenized(folder, "tiktoken.model"), "its tokenizer as code, which", "mlx-community"),
        (lambda folder: tokenized(folder, "tokenization_k.py"), r"as code \(tokenization_k.py\)", "mlx-community"),
        (linked, "a link that leads out of the model's directory", "Put the file itself there"),
        (partial(written, name=INDEX_NAME, content='{"weight_map": {"a": "../b"}}'), "lies outside", "mlx-community"),
        (partial(written, name=INDEX_NAME, content="{}"), "has no weight_map", "Delete that file"),
        (partial(written, name="config.json", content="<html>"), "is not readable JSON", AGAIN),
        (unlinked, f"{WEIGHTS} is missing", AGAIN),
        (cut, f"{WEIGHTS} is cut short", AGAIN),
    ],
)
def test_a_refusal_names_what_is_there_and_what_helps(
    original: Path, tmp_path: Path, spoil: Callable[[Path], object], what: str, fix: str
) -> None:
    model = Path(shutil.copytree(original, tmp_path / "tiny"))
    spoil(model)
    with pytest.raises(ModelError, match=what) as refused:
        read_entry(model)
    cure = refused.value.fix.lower()
    assert fix.lower() in cure
    assert AGAIN not in cure or fix in (AGAIN, "git lfs pull")


def test_what_is_wrong_on_the_hub_is_no_better_after_another_download() -> None:
    origin = HubOrigin(repo="acme/x", commit="0" * 40)
    for content in (b"<html>", b'{"model_type": "llama"}'):
        with pytest.raises(BadModel) as refused:
            HubModel(origin, [], frozenset({"config.json", "model-00001-of-00002.safetensors"})).check(
                {"config.json": content}
            )
        assert AGAIN not in refused.value.fix.lower()


def test_a_single_file_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").touch()
    with pytest.raises(ModelError, match=r"x\.gguf is a file"):
        read_entry(tmp_path / "x.gguf")
