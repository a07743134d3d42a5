"""Parses the headers of safetensors files, the only weight format that is ever opened.

Checks sizes before use, so neither this code nor mlx follows an offset out of a file.
"""

from __future__ import annotations

import fnmatch
import json
import re
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, pairwise
from math import prod
from pathlib import Path
from typing import Any, Final

from core.errors import BadModel
from core.events import Value
from core.models.files import checked_files
from core.settings import MIB
from core.text import clean_text

MAX_HEADER_BYTES: Final = 64 * MIB
MAX_TENSORS: Final = 100_000
MAX_DIMENSIONS: Final = 16
INDEX_NAME: Final = "model.safetensors.index.json"
WEIGHT_PATTERN: Final = "model*.safetensors"
# files that, with the weights, decide a model's answers
DECIDING_FILES: Final = (
    "config.json", INDEX_NAME, "hf_quant_config.json", "generation_config.json", "tokenizer.json", "tokenizer.model",
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt",
    "tiktoken.model", "chat_template.jinja", "chat_template.json",
)  # fmt: skip

_BITS: Final = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "U16": 16, "I16": 16, "F16": 16,
    "BF16": 16, "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64, "C64": 64,
}  # fmt: skip
_NUMBERED: Final = re.compile(r"(.*-)\d{5}-of-(\d{5})\.safetensors")
# other forms of weights, by the end of a file's name
_FORMS: Final = {
    ".gguf": "GGUF weights, which llama.cpp and Ollama run, and mlx-lm does not",
    "consolidated.safetensors": "the weights in their maker's own form, which mlx-lm does not read",
    ".onnx": "weights for ONNX",
    ".mlpackage": "weights for Core ML",
    ".mlmodelc": "weights for Core ML",
    ".engine": "weights for TensorRT",
    "openvino_model.xml": "weights for OpenVINO",
    ".tflite": "weights for TensorFlow Lite",
    **dict.fromkeys((".bin", ".pt", ".pth", ".pkl", ".ckpt"), "pickled weights, which can run code when opened"),
    **dict.fromkeys((".npz", ".npy"), "NumPy weights, which can run code when opened"),
}


class Tensor(Value, frozen=True, kw_only=True):
    """One tensor in a safetensors header."""

    dtype: str  # safetensors' name
    shape: tuple[int, ...]
    nbytes: int  # in the file
    begin: int = 0  # offset from the end of the header


class SafetensorsHeader(Value, frozen=True, kw_only=True):
    """Parsed header of one safetensors file."""

    nbytes: int  # including the 8 bytes of its length
    tensors: dict[str, Tensor]


def parse_index(content: bytes | None, name: str) -> dict[str, str] | None:
    """Tensor name -> file name from the index of the model `name`; None without an index. Raises BadModel."""
    if content is None:
        return None
    weight_map = checked_files.parse_json(content, f"{INDEX_NAME} in {name}").get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(file, str) for file in weight_map.values()):
        what = f"{INDEX_NAME} in {name} has no weight_map of names."
        raise BadModel(what, "Delete that file if all weights are in the folder: it is not needed then.")
    return weight_map


def read_index(directory: Path) -> dict[str, str] | None:
    """The index of a model folder; None without one, and for one left over from another form of the model."""
    index = parse_index(checked_files.read_bytes(directory, INDEX_NAME), checked_files.name_of(directory))
    return None if index and is_stale(index, [file.name for file in directory.iterdir()]) else index


def is_stale(index: Mapping[str, str], files: Collection[str]) -> bool:
    """Whether an index is of other files than the weights, which are one file."""
    return "model.safetensors" in files and set(files).isdisjoint(index.values())


def weight_files(directory: Path, index: Mapping[str, str] | None) -> list[Path]:
    """The safetensors files of a model, by name. Raises as `weight_names`, and BadModel if a link leads outside."""
    for name in set((index or {}).values()):
        checked_files.inside(directory, name)
    # hub cache links keep their names, because a blob's name means nothing to a reader
    found = weight_names([file.name for file in directory.iterdir()], index, checked_files.name_of(directory))
    for name in found:
        checked_files.inside(directory, name)
    return [directory / name for name in found]


def weight_names(files: Collection[str], index: Mapping[str, str] | None, model: str) -> list[str]:
    """The safetensors files of a model among its `files`, sorted. `index`: its parsed index. Raises BadModel without
    any, and if the index or a numbered set lists a missing file.
    """
    found = sorted(fnmatch.filter(files, WEIGHT_PATTERN))
    for name in chain(_names_of_sets(found), sorted(set((index or {}).values()))):
        if name not in found:
            raise BadModel(f"{name} is missing in {model}.")
    if found:
        return found
    raise no_weights(model, files)


def no_weights(model: str, files: Collection[str]) -> BadModel:
    """Error of a model without safetensors weights, which names those of another form."""
    for name in sorted(files):
        for end, form in _FORMS.items():
            if name.endswith(end):
                return BadModel(f"{clean_text(name)} in {model} holds {form}.", checked_files.OTHER_VERSION)
    return BadModel(f"{model} has no {WEIGHT_PATTERN} file.", checked_files.OTHER_VERSION)


def _names_of_sets(found: list[str]) -> Iterator[str]:
    """Names of all files of each set `PREFIX-00001-of-00003.safetensors` with at least one file in `found`."""
    for prefix, total in sorted({(m[1], m[2]) for m in map(_NUMBERED.fullmatch, found) if m}):
        for number in range(1, int(total) + 1):
            yield f"{prefix}{number:05}-of-{total}.safetensors"


def header_bytes(file: Path) -> bytes:
    """JSON header of a safetensors file, after its 8 bytes of little-endian length. Raises BadModel."""
    try:
        with file.open("rb") as f:
            prefix = f.read(8)
            checked_files.fail_if_pointer(prefix + f.read(len(checked_files.POINTER) - 8), file.name)
            f.seek(8)
            length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
            if not 2 <= length <= MAX_HEADER_BYTES:
                raise BadModel(f"{file.name} is not a safetensors file: its header claims {length} bytes.")
            header = f.read(length)
    except OSError as error:
        raise BadModel(f"{file.name} cannot be read: {error}.", checked_files.UNREADABLE) from error
    if len(header) < length:
        raise BadModel(f"{file.name} is cut short: it ends inside its header.")
    return header


def parse_header(file: Path, header: bytes) -> SafetensorsHeader:
    """Parse a header read by `header_bytes`. Raises BadModel unless every tensor has its own bytes inside the file."""
    checked_files.check_values(header, f"The header of {file.name}", 12 * MAX_TENSORS)
    try:
        entries = json.loads(header, object_pairs_hook=_unique, parse_int=checked_files.whole)
    except (ValueError, RecursionError) as error:
        raise BadModel(f"{file.name} has a damaged header: {error}.") from error
    if not isinstance(entries, dict) or len(entries) > MAX_TENSORS:
        raise BadModel(f"{file.name} has a header that is not a list of tensors.")
    entries.pop("__metadata__", None)
    data_bytes = file.stat().st_size - 8 - len(header)
    tensors = {name: _tensor(file, name, entry, data_bytes) for name, entry in entries.items()}
    _check_apart(file, tensors)
    return SafetensorsHeader(nbytes=8 + len(header), tensors=tensors)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Reject duplicate names, because two parsers may choose different entries."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name appears twice")
    return found


def _check_apart(file: Path, tensors: dict[str, Tensor]) -> None:
    """Reject overlapping tensors, which would let a small file describe a model of any size."""
    placed = sorted((t.begin, t.begin + t.nbytes, name) for name, t in tensors.items() if t.nbytes)
    for (_, end, name), (begin, _, other) in pairwise(placed):
        if begin < end:
            raise BadModel(f"{file.name} is damaged: the tensors {name!r} and {other!r} share bytes.")


def _tensor(file: Path, name: str, entry: Any, data_bytes: int) -> Tensor:
    try:
        dtype, shape = str(entry["dtype"]), tuple(_naturals(entry["shape"]))
        begin, end = _naturals(entry["data_offsets"])
    except (KeyError, TypeError, ValueError) as error:
        raise BadModel(f"{file.name} describes the tensor {name!r} wrongly.") from error
    fits = dtype in _BITS and len(shape) <= MAX_DIMENSIONS and max(shape, default=0) < 1 << 31
    if not fits or prod(shape) * _BITS[dtype] != (end - begin) * 8:
        raise BadModel(f"{file.name} describes the tensor {name!r} wrongly: {dtype:.20} {list(shape)!s:.200}.")
    if end > data_bytes:
        raise BadModel(f"{file.name} is cut short: the tensor {name!r} ends after the end of the file.")
    return Tensor(dtype=dtype, shape=shape, nbytes=end - begin, begin=begin)


def _naturals(values: Iterable[Any]) -> list[int]:
    """`values` as a list of integers of at least 0; raises ValueError for anything else."""
    numbers = list(values)
    if not all(type(n) is int and n >= 0 for n in numbers):
        raise ValueError("not whole numbers")
    return numbers


def check_tensors(headers: Mapping[str, SafetensorsHeader], index: Mapping[str, str] | None, name: str) -> None:
    """Raise BadModel if two files of the model `name` hold the same tensor, or a file lacks a tensor of the index."""
    home: dict[str, str] = {}
    for file, header in headers.items():
        for tensor in header.tensors:
            if home.setdefault(tensor, file) != file:
                # mlx-lm would take one of them by folder order
                what = f"{home[tensor]} and {file} in {name} both hold the tensor {tensor!r}."
                raise BadModel(what, "Remove the files that do not belong to this model.")
    for tensor, file in (index or {}).items():
        if tensor not in home:
            what = f"{file} in {name} lacks the tensor {tensor!r} that {INDEX_NAME} lists there."
            raise BadModel(what, "Delete the index if it is of another version, or download the model again.")
