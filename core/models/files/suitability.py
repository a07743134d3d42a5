"""Judges from a model's small files whether it can run here: architecture, form of the weights, tokenizer.

The list of models, plans, downloads and loading all ask `check_suitable`, so none accepts what another refuses. Nothing
is imported from mlx-lm, which would take seconds.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from core.errors import BadModel, UnsupportedModel
from core.models.files.model_settings import ModelSettings
from core.models.files.safetensors import INDEX_NAME, OTHER_VERSION, parse_index
from core.models.files.shape_settings import text_config
from core.text import clean_text

# aliases of mlx-lm, compared with its own by a test
ALIASES: Final = {
    "mistral": "llama",
    "llava": "mistral3",
    "phi-msft": "phixtral",
    "falcon_mamba": "mamba",
    "joyai_llm_flash": "deepseek_v3",
    "kimi_k2": "deepseek_v3",
    "qwen2_5_vl": "qwen2_vl",
    "minimax_m2": "minimax",
    "iquestcoder": "llama",
    "xverse": "llama",
    "gemma4_unified": "gemma4",
    "deepseek_v41_text": "deepseek_v41",
}

_TOKENIZERS: Final = ("tokenizer.json", "tokenizer.model", "vocab.json")
_TEMPLATES: Final = ("chat_template.jinja", "chat_template.json")
_TEMPLATE_KEYS: Final = ("chat_template", "chat_template_type")
_PACKED: Final = ("nvfp4-pack-quantized", "mxfp4-pack-quantized", "pack-quantized")  # of compressed-tensors
_IMPORTED: Final = re.compile(r"^from \.(\w*) import ([\w, ]+)", re.MULTILINE)
NO_TEMPLATE: Final = "The model has no chat template: it continues a text, and takes one message at a time."


def check_suitable(settings: ModelSettings) -> None:
    """Raise UnsupportedModel or BadModel, with what would help, if a model with these small files can't run here."""
    check_architecture(settings.config, settings.name)
    if form := _unreadable_form(settings):
        raise UnsupportedModel(f"{settings.name} is quantised as {form}, which mlx-lm does not read.", OTHER_VERSION)
    _check_tokenizer(settings)


def notes_on(settings: ModelSettings) -> tuple[str, ...]:
    """What the user should know about a model that runs."""
    keys = settings.json("tokenizer_config.json").keys()
    has_template = any(key in keys for key in _TEMPLATE_KEYS) or any(
        name in _TEMPLATES or name.startswith("additional_chat_templates") for name in settings.files
    )
    renders = _says(settings.config["model_type"], "chat_template_type")
    return () if has_template or renders else (NO_TEMPLATE,)


def check_architecture(config: dict[str, Any], name: str) -> None:
    """Raise UnsupportedModel if mlx-lm has no module for the `model_type`, or the model brings its own code.

    Does nothing where mlx-lm is not installed.
    """
    if "model_file" in config:
        raise UnsupportedModel(
            f"{name} brings its own code ({str(config['model_file'])!r:.100}), which macluster never runs.",
            "Choose a model whose architecture mlx-lm knows.",
        )
    folder, model_type = _modules(), config["model_type"]
    if folder and not (folder / f"{ALIASES.get(model_type, model_type)}.py").is_file():
        raise UnsupportedModel(
            f"mlx-lm on this Mac does not know the architecture {model_type!r} of {name}.",
            "Choose another model, or wait for a version of macluster that knows it.",
        )


def _unreadable_form(settings: ModelSettings) -> str:
    """The quantisation, if mlx-lm can't read it; "" if it can."""
    config = settings.config
    if config.get("quantization"):
        return ""
    found = next(
        (
            each
            for each in (
                config.get("quantization_config"),
                text_config(config).get("quantization_config"),
                settings.json("hf_quant_config.json"),
            )
            if isinstance(each, dict) and each
        ),
        None,
    )
    if found is None:
        return ""
    method = clean_text(str(found.get("quant_method", "an unnamed method")))[:50]
    inner = found.get("quantization")
    algorithm = (inner if isinstance(inner, dict) else found).get("quant_algo")
    match method:
        case "bitnet" | "mxfp4" | "mxfp8":
            is_readable = True
        case "fp8":
            is_mx = (found.get("scale_fmt"), found.get("weight_block_size")) == ("ue8m0", [32, 32])
            is_readable = is_mx or _says(config["model_type"], "weight_scale_inv")
        case "compressed-tensors":
            is_readable = found.get("format") in _PACKED
            method = f"{method} ({clean_text(str(found.get('format')))[:50]})"
        case "modelopt":
            is_readable, method = algorithm == "NVFP4", f"{method} ({clean_text(str(algorithm))[:50]})"
        case "awq" | "gptq":
            bits = found.get("bits", 4)
            index = parse_index(settings.contents.get(INDEX_NAME), settings.name) or {}
            is_reordered = any(tensor.endswith(".g_idx") for tensor in index)
            is_readable = bits == 4 and not is_reordered
            method = f"{method} ({'with g_idx' if is_reordered else f'{bits!r:.20} bits'})"
        case _:
            is_readable = False
    return "" if is_readable else method


def _check_tokenizer(settings: ModelSettings) -> None:
    files, name = settings.files, settings.name
    if any(tokenizer in files for tokenizer in _TOKENIZERS):
        return
    code = next((file for file in sorted(files) if re.fullmatch(r"tokenization_\w+\.py", file)), "")
    if code or "tiktoken.model" in files or "auto_map" in settings.json("tokenizer_config.json"):
        brings = f" ({clean_text(code)})" if code else ""
        what = f"{name} brings its tokenizer as code{brings}, which macluster never runs."
        raise UnsupportedModel(what, "Choose a version of it that has a tokenizer.json.")
    if "tekken.json" in files:
        what = f"{name} has its tokenizer only in Mistral's own form (tekken.json)."
        raise UnsupportedModel(
            what, "Choose a version of it that has a tokenizer.json, for example from mlx-community."
        )
    fix = "Copy tokenizer.json and tokenizer_config.json from the model it was made of, or choose another version."
    raise BadModel(f"{name} has no tokenizer.", fix)


@cache
def _modules() -> Path | None:
    spec = find_spec("mlx_lm")
    locations = spec.submodule_search_locations if spec else None
    return Path(locations[0]) / "models" if locations else None


@cache
def _says(model_type: str, word: str) -> bool:
    """Whether mlx-lm's module of the architecture, or one that it builds on, mentions `word`."""
    folder = _modules()
    module = folder / f"{ALIASES.get(model_type, model_type)}.py" if folder else None
    if module is None or not module.is_file():
        return False
    text = module.read_text("utf-8")
    builds_on = [name for before, names in _IMPORTED.findall(text) for name in (before or names).split(", ")]
    return word in text or any(_says(name.strip(), word) for name in builds_on)
