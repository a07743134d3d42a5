"""Which models lie on this Mac's disk. Reads JSON and safetensors headers only, never a weight, never code."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from core.errors import BadModel, ModelNotFound
from core.events import Value
from core.models.headers import (
    INDEX_NAME,
    MAX_JSON_BYTES,
    Tensor,
    header_bytes,
    inside,
    read_config,
    read_tensors,
    text_config,
    weight_files,
)
from core.models.layout import layout_of
from core.settings import DEFAULT_CONTEXT
from core.text import clean_name

_CONTEXTS: Final = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "seq_length")
_DTYPES: Final = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
_TOKENIZER_FILES: Final = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
)


class ModelEntry(Value, frozen=True, kw_only=True):
    """A model on disk. `context_max` counts tokens; `quantization` is "4-bit", "8-bit", ... or the weights' dtype.

    `total_bytes` counts the weights of the language model; `fingerprint` is equal on two Macs that hold the same files.
    """

    name: str
    path: str
    model_type: str
    layers: int
    total_bytes: int
    quantization: str
    context_max: int
    fingerprint: str


def read_entry(directory: Path) -> ModelEntry:
    """The model in `directory`; raises ModelNotFound, or BadModel naming the file at fault."""
    config = read_config(directory)
    tensors = read_tensors(directory)
    layout = layout_of(config, tensors, directory.name)
    text = text_config(config)
    contexts = [n for key in _CONTEXTS if isinstance(n := text.get(key), int) and n > 0]
    return ModelEntry(
        name=_name(directory),
        path=str(directory),
        model_type=config["model_type"],
        layers=layout.layers,
        total_bytes=layout.total_bytes,
        quantization=_quantization(text, tensors),
        context_max=contexts[0] if contexts else DEFAULT_CONTEXT,
        fingerprint=fingerprint(directory),
    )


def scan(roots: Sequence[Path]) -> list[ModelEntry]:
    """Every model below `roots`, by name; directories that hold no model, or a broken one, are left out.

    A root may be a model directory, a folder of model directories, or a Hugging Face hub cache.
    """
    entries: dict[Path, ModelEntry] = {}
    for root in roots:
        for directory in _candidates(root):
            try:
                entries.setdefault(directory.resolve(), read_entry(directory))
            except (BadModel, ModelNotFound, OSError):
                continue
    return sorted(entries.values(), key=lambda e: (e.name.casefold(), e.path))


def fingerprint(directory: Path) -> str:
    """Hex SHA-256 over config.json, the safetensors index (without one, each file's header) and the tokenizer's files.

    The directory's own name does not count. Raises ModelNotFound or BadModel.
    """
    if not directory.is_dir():
        raise ModelNotFound(f"There is no model directory {directory}.")
    digest = hashlib.sha256(b"macluster/1 model\0")
    for name in ("config.json", INDEX_NAME, *_TOKENIZER_FILES):
        file = inside(directory, name)
        if file.is_file():
            if file.stat().st_size > MAX_JSON_BYTES:
                raise BadModel(f"{name} in {directory.name} is larger than {MAX_JSON_BYTES >> 20} MiB.")
            _add(digest, name, file.read_bytes())
    if not inside(directory, INDEX_NAME).is_file():
        for position, file in enumerate(weight_files(directory)):
            _add(digest, f"header {position}", header_bytes(file))
    return digest.hexdigest()


def _add(digest: hashlib._Hash, name: str, content: bytes) -> None:
    # lengths go in too, so that no two sets of files can be read as the same bytes
    digest.update(f"{name}\0{len(content)}\0".encode() + content)


def _candidates(root: Path) -> Iterator[Path]:
    """Directories at or below `root` that may be models."""
    if (root / "config.json").exists():
        yield root
        return
    for child in sorted(_folders(root)):
        if child.name.startswith("models--"):
            yield from _current_snapshot(child)
        elif (child / "config.json").exists():
            yield child


def _current_snapshot(repository: Path) -> list[Path]:
    """The one revision that stands for a repository of the hub cache: what `main` means there, else the newest."""
    snapshots = [s for s in _folders(repository / "snapshots") if (s / "config.json").exists()]
    ref = repository / "refs" / "main"
    main = ref.read_text("utf-8", "replace").strip() if ref.is_file() and ref.stat().st_size < 200 else ""
    return sorted(snapshots, key=lambda s: (s.name == main, s.stat().st_mtime))[-1:]


def _folders(parent: Path) -> list[Path]:
    try:
        return [child for child in parent.iterdir() if child.is_dir()]
    except OSError:
        return []


def _name(directory: Path) -> str:
    """A hub snapshot is called after its repository, any other model after its directory."""
    repository = directory.parent.parent.name
    hub = directory.parent.name == "snapshots" and repository.startswith("models--")
    return clean_name(repository.split("--")[-1] if hub else directory.resolve().name) or "model"


def _quantization(text: dict[str, Any], tensors: Mapping[str, Tensor]) -> str:
    for key in ("quantization", "quantization_config"):
        settings = text.get(key)
        if isinstance(settings, dict):
            if isinstance(bits := settings.get("bits"), int):
                return f"{bits}-bit"
            if isinstance(method := settings.get("quant_method"), str):
                return clean_name(method) or "quantized"
    weights: Counter[str] = Counter()
    for tensor in tensors.values():
        weights[tensor.dtype] += tensor.nbytes
    heaviest = weights.most_common(1)[0][0]
    return _DTYPES.get(heaviest, heaviest.lower())
