"""The small files of a model, from a folder or from the hub."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from math import isfinite
from typing import Any, Final, NamedTuple

from core.errors import BadModel, ModelError, UnsupportedModel
from core.models.files.checked_files import OTHER_VERSION, parse_json
from core.models.files.safetensors import DECIDING_FILES, no_weights
from core.text import clean_text

ADAPTER_NAME: Final = "adapter_config.json"  # only LoRA adapters have it
SMALL_FILES: Final = (*DECIDING_FILES, ADAPTER_NAME)
# limits of counts and sizes in a config.json, which become Python objects one by one
MAX_COUNT: Final = 10_000
MAX_SIZE: Final = 1 << 27

_COUNT: Final = re.compile(r"(layers?|blocks?|loops?|experts?|heads?|groups?|^loop_num)$")
_NUMBER: Final = re.compile(r"_(heads|window)$")
_FINITE: Final = re.compile(r"_(heads|window|pattern)$")
_SIZE: Final = re.compile(r"(_size|_dims?|_rank|_inner|_embd|_model|_vocab|_state|_width)$")


class ModelSettings(NamedTuple):
    """Contents of a model's small files: config, index, tokenizer, chat template."""

    name: str
    config: dict[str, Any]  # config.json
    contents: Mapping[str, bytes]  # existing DECIDING_FILES by name
    files: Collection[str]  # names of all its files, read or not

    def json(self, file: str) -> dict[str, Any]:
        """JSON object in one of the files; empty if it doesn't exist. Raises BadModel."""
        content = self.contents.get(file)
        return {} if content is None else parse_json(content, f"{file} in {self.name}")


def settings_of(name: str, contents: Mapping[str, bytes], files: Collection[str]) -> ModelSettings:
    """The settings of the model `name`. Without a config.json, raises an error that tells what `files` (with the
    config.json of subfolders) are instead. Raises BadModel, UnsupportedModel.
    """
    if "config.json" not in contents:
        raise _without_config(name, files, contents.get(ADAPTER_NAME))
    config = parse_json(contents["config.json"], f"config.json in {name}")
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not model_type.replace("-", "_").replace(".", "_").isidentifier():
        what = f"config.json in {name} names no model_type, as language models for mlx-lm do."
        raise BadModel(what, "Choose a language model in the form of transformers or mlx-lm.")
    _check_limits(config, name)
    return ModelSettings(name, config, contents, files)


def _without_config(name: str, files: Collection[str], adapter: bytes | None) -> ModelError:
    if ADAPTER_NAME in files:
        known = parse_json(adapter, f"{ADAPTER_NAME} in {name}") if adapter else {}
        base = clean_text(str(known.get("base_model_name_or_path") or known.get("model") or "its base model"))[:200]
        fix = f"Load {base} itself, or a version into which the adapter was merged."
        return UnsupportedModel(f"{name} is a LoRA adapter for {base}, not a whole model.", fix)
    if "model_index.json" in files:
        return UnsupportedModel(f"{name} makes images (diffusers); it is no language model.", "Choose another model.")
    if {"blobs", "manifests"} <= set(files):
        fix = "macluster can't use them: download the same model from the hub, for example from mlx-community."
        return UnsupportedModel(f"{name} is Ollama's folder, whose models are GGUF.", fix)
    if inner := sorted(file[:-12] for file in files if file.endswith("/config.json") and file[0] != "."):
        what = f"{name} is not a model, but a folder of models, such as {clean_text(inner[0])}."
        return UnsupportedModel(what, "Give the folder of one model, or start the node with --models and this folder.")
    if any(file.endswith(".safetensors") and not file.endswith("consolidated.safetensors") for file in files):
        return BadModel(f"{name} has no config.json.", "Copy it from where the model came from, or choose another one.")
    return no_weights(name, files) if files else BadModel(f"{name} is empty.")


def _check_limits(config: dict[str, Any], name: str) -> None:
    """Raise BadModel for an impossible count or size anywhere in the config.json of the model `name`."""
    open_values: list[Any] = [config]
    while open_values:
        value = open_values.pop()
        if isinstance(value, list):
            open_values.extend(v for v in value if isinstance(v, dict | list))
            continue
        for key, setting in value.items():
            if isinstance(setting, dict | list):
                open_values.append(setting)
            if not _makes_sense(key, setting):
                what = f"config.json in {name} has {key!r} = {str(setting)[:60]!r}, which makes no sense."
                raise BadModel(what, OTHER_VERSION)


def _makes_sense(key: str, setting: Any) -> bool:
    if isinstance(setting, dict | str):
        return not _NUMBER.search(key)
    if not isinstance(setting, int | float):
        return True
    if _FINITE.search(key) and isinstance(setting, float) and not isfinite(setting):
        return False
    if _COUNT.search(key):
        return 0 <= setting <= MAX_COUNT
    # some families mean "no limit" by -1
    return not _SIZE.search(key) or -1 <= setting <= MAX_SIZE
