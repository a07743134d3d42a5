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
from core.models.files.checked_files import OTHER_VERSION
from core.models.files.model_settings import ADAPTER_NAME, ModelSettings
from core.models.files.safetensors import INDEX_NAME, parse_index
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
# keys of tokenizer_config.json and names of files that give a chat template
_TEMPLATES: Final = (
    "chat_template", "chat_template_type", "chat_template.jinja", "chat_template.json", "additional_chat_templates",
)  # fmt: skip
# methods of quantisation that mlx-lm reads, some only in one form
_READABLE: Final = (
    "bitnet", "mxfp4", "mxfp8", ("modelopt", "NVFP4"), ("awq", "4 bits"), ("gptq", "4 bits"),
    *(("compressed-tensors", form) for form in ("nvfp4-pack-quantized", "mxfp4-pack-quantized", "pack-quantized")),
)  # fmt: skip
_IMPORTED: Final = re.compile(r"^from \.(\w*) import ([\w, ]+)", re.MULTILINE)
_OTHER_MODEL: Final = "Choose another model, or wait for a version of macluster that knows it."
NO_TEMPLATE: Final = "The model has no chat template: it continues a text, and takes one message at a time."

STALE_INDEX: Final = f"{INDEX_NAME} lists files of another form of the model, and is ignored."
ADAPTER: Final = "The LoRA adapter in the model's folder is not applied."


def check_suitable(settings: ModelSettings) -> None:
    """Raise UnsupportedModel or BadModel, with what would help, if a model with these small files can't run here."""
    check_architecture(settings.config, settings.name)
    if form := _unreadable_form(settings):
        raise UnsupportedModel(f"{settings.name} is quantised as {form}, which mlx-lm does not read.", OTHER_VERSION)
    _check_tokenizer(settings)


def notes_on(settings: ModelSettings) -> tuple[str, ...]:
    """Sentences for the plan of a model that runs."""
    known = {*settings.json("tokenizer_config.json"), *(file.partition("/")[0] for file in settings.files)}
    has_template = _says(settings.config["model_type"], "chat_template_type") or not known.isdisjoint(_TEMPLATES)
    is_stale = INDEX_NAME in settings.files and INDEX_NAME not in settings.contents
    said = {NO_TEMPLATE: not has_template, STALE_INDEX: is_stale, ADAPTER: ADAPTER_NAME in settings.files}
    return tuple(note for note, applies in said.items() if applies)


def check_architecture(config: dict[str, Any], name: str) -> None:
    """Raise UnsupportedModel if an installed mlx-lm has no such module, or the model brings its own code."""
    if "model_file" in config:
        what = f"{name} brings its own code ({str(config['model_file'])!r:.100}), which macluster never runs."
        raise UnsupportedModel(what, "Choose a model whose architecture mlx-lm knows.")
    folder, model_type = _modules(), config["model_type"]
    if folder and not (folder / f"{ALIASES.get(model_type, model_type)}.py").is_file():
        raise unknown_architecture(model_type, name)
    types, every = config.get("indexer_types"), config.get("index_topk_freq")
    shares = "shared" in str(types) if types else every not in (None, 1)
    if folder and shares and not _says(model_type, "index_topk_freq"):
        raise UnsupportedModel(f"Layers of {name} share an indexer, which mlx-lm does not read.", _OTHER_MODEL)


def unknown_architecture(model_type: str, name: str) -> UnsupportedModel:
    what = f"mlx-lm on this Mac does not know the architecture {model_type!r} of {name}."
    return UnsupportedModel(what, _OTHER_MODEL)


def _unreadable_form(settings: ModelSettings) -> str:
    """The quantisation, if mlx-lm can't read it; "" if it can."""
    found = text_config(settings.config).get("quantization_config") or settings.json("hf_quant_config.json")
    if settings.config.get("quantization") or not isinstance(found, dict) or not found:
        return ""
    method, inner = str(found.get("quant_method", "something unknown")), found.get("quantization")
    detail = str(found.get("format") or (inner if isinstance(inner, dict) else found).get("quant_algo") or "")
    if method in ("awq", "gptq"):
        index = parse_index(settings.contents.get(INDEX_NAME), settings.name) or {}
        is_reordered = any(tensor.endswith(".g_idx") for tensor in index)
        detail = "with g_idx" if is_reordered else f"{found.get('bits', 4)} bits"
    is_mx = (found.get("scale_fmt"), found.get("weight_block_size")) == ("ue8m0", [32, 32])
    if method == "fp8" and (is_mx or _says(settings.config["model_type"], "weight_scale_inv")):
        return ""
    is_readable = method in _READABLE or (method, detail) in _READABLE
    return "" if is_readable else clean_text(f"{method} ({detail})" if detail else method)[:100]


def _check_tokenizer(settings: ModelSettings) -> None:
    files, name = settings.files, settings.name
    if any(tokenizer in files for tokenizer in _TOKENIZERS):
        return
    code = next((file for file in sorted(files) if re.fullmatch(r"tokenization_\w+\.py", file)), "")
    if code or "tiktoken.model" in files or "auto_map" in settings.json("tokenizer_config.json"):
        brings = f" ({clean_text(code)})" if code else ""
        what = f"{name} brings its tokenizer as code{brings}, which macluster never runs."
    elif "tekken.json" in files:
        what = f"{name} has its tokenizer only in Mistral's own form (tekken.json)."
    else:
        fix = "Copy tokenizer.json and tokenizer_config.json from the model it was made of, or choose another version."
        raise BadModel(f"{name} has no tokenizer.", fix)
    raise UnsupportedModel(what, "Choose a version of it that has a tokenizer.json, for example from mlx-community.")


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
