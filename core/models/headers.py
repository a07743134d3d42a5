"""The files of a model directory, judged before anything parses their content: safetensors headers and JSON.

A model directory is foreign input. Only safetensors are read, every file must lie inside the directory, and sizes are
checked before they are believed, so neither this code nor mlx ever follows an offset out of a file.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any, Final

from core.errors import BadModel, ModelNotFound
from core.events import Value
from core.settings import MIB

MAX_HEADER_BYTES: Final = 64 * MIB
MAX_JSON_BYTES: Final = 64 * MIB
MAX_TENSORS: Final = 500_000
INDEX_NAME: Final = "model.safetensors.index.json"
WEIGHT_PATTERN: Final = "model*.safetensors"

_BITS: Final = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "U16": 16, "I16": 16, "F16": 16,
    "BF16": 16, "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64, "C64": 64,
}  # fmt: skip
_PICKLES: Final = (".bin", ".pt", ".pth", ".pkl", ".ckpt", ".npz")


class Tensor(Value, frozen=True, kw_only=True):
    """One tensor as a safetensors header describes it: `dtype` in safetensors' words, `nbytes` in the file."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int


def inside(directory: Path, name: str) -> Path:
    """The file `name` of a model directory, resolved; raises BadModel if it is, or links to, something outside.

    Snapshots of the Hugging Face cache link into the `blobs` folder beside them; that folder counts as inside.
    """
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or "\\" in name or "\0" in name:
        raise BadModel(f"{directory.name} names the file {name!r}, which lies outside the model's directory.")
    real = (directory / name).resolve()
    home = directory.resolve()
    allowed = [home]
    if home.parent.name == "snapshots" and home.parent.parent.name.startswith("models--"):
        allowed.append(home.parent.parent / "blobs")
    if not any(real.is_relative_to(root) for root in allowed):
        raise BadModel(f"{name} in {directory.name} is a link that leads out of the model's directory.")
    return real


def read_json(directory: Path, name: str) -> dict[str, Any] | None:
    """The JSON object in the file `name`, or None where there is no such file; raises BadModel."""
    file = inside(directory, name)
    if not file.is_file():
        return None
    if file.stat().st_size > MAX_JSON_BYTES:
        raise BadModel(f"{name} in {directory.name} is larger than {MAX_JSON_BYTES // MIB} MiB.")
    try:
        value = json.loads(file.read_bytes())
    except (ValueError, RecursionError, OSError) as error:
        raise BadModel(f"{name} in {directory.name} is no readable JSON: {error}.") from error
    if not isinstance(value, dict):
        raise BadModel(f"{name} in {directory.name} holds no JSON object.")
    return value


def read_config(directory: Path) -> dict[str, Any]:
    """config.json; raises ModelNotFound where there is no directory, BadModel where it has no usable config.json."""
    if not directory.is_dir():
        raise ModelNotFound(f"There is no model directory {directory}.")
    config = read_json(directory, "config.json")
    if config is None:
        raise BadModel(f"{directory.name} has no config.json.")
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not model_type.replace("-", "_").replace(".", "_").isidentifier():
        raise BadModel(f"config.json in {directory.name} names no model_type.")
    return config


def text_config(config: dict[str, Any]) -> dict[str, Any]:
    """The settings of the language model: multimodal families nest them in `text_config`."""
    nested = config.get("text_config")
    return {**config, **nested} if isinstance(nested, dict) else config


def read_index(directory: Path) -> dict[str, str] | None:
    """The index, tensor name -> file name, or None where there is none; raises BadModel for a broken one."""
    index = read_json(directory, INDEX_NAME)
    if index is None:
        return None
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(f, str) for f in weight_map.values()):
        raise BadModel(f"{INDEX_NAME} in {directory.name} has no weight_map of names.")
    return weight_map


def weight_files(directory: Path) -> list[Path]:
    """The safetensors files of a model, each inside it, in the order of their names.

    Raises BadModel where there are none, one of the index is missing, or a link leads outside.
    """
    found = sorted(p.name for p in directory.glob(WEIGHT_PATTERN))
    for name in sorted(set((read_index(directory) or {}).values())):
        inside(directory, name)
        if name not in found:
            raise BadModel(f"{name} is missing in {directory.name}.")
    if not found:
        if any(p.suffix in _PICKLES for p in directory.iterdir()):
            raise BadModel(
                f"{directory.name} has only pickled weights, which can run code when they are opened.",
                "Fetch a safetensors version of the model.",
            )
        raise BadModel(f"{directory.name} has no {WEIGHT_PATTERN} file.")
    return [inside(directory, name) for name in found]


def header_bytes(file: Path) -> bytes:
    """The JSON header of a safetensors file: 8 bytes of little-endian length, then that many bytes; raises BadModel."""
    try:
        with file.open("rb") as f:
            prefix = f.read(8)
            length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
            if not 2 <= length <= MAX_HEADER_BYTES:
                raise BadModel(f"{file.name} is no safetensors file: its header claims {length} bytes.")
            header = f.read(length)
    except OSError as error:
        raise BadModel(f"{file.name} cannot be read: {error}.") from error
    if len(header) < length:
        raise BadModel(f"{file.name} is cut short: it ends inside its header.")
    return header


def read_header(file: Path) -> dict[str, Tensor]:
    """The tensors of one safetensors file; raises BadModel unless every one lies whole inside the file."""
    header = header_bytes(file)
    try:
        entries = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise BadModel(f"{file.name} has a damaged header: {error}.") from error
    if not isinstance(entries, dict) or len(entries) > MAX_TENSORS:
        raise BadModel(f"{file.name} has a header that is no list of tensors.")
    entries.pop("__metadata__", None)
    data_bytes = file.stat().st_size - 8 - len(header)
    return {name: _tensor(file, name, entry, data_bytes) for name, entry in entries.items()}


def _tensor(file: Path, name: str, entry: Any, data_bytes: int) -> Tensor:
    try:
        dtype, shape = str(entry["dtype"]), tuple(_naturals(entry["shape"]))
        begin, end = _naturals(entry["data_offsets"])
    except (KeyError, TypeError, ValueError) as error:
        raise BadModel(f"{file.name} describes the tensor {name!r} wrongly.") from error
    if dtype not in _BITS or prod(shape) * _BITS[dtype] != (end - begin) * 8:
        raise BadModel(f"{file.name} describes the tensor {name!r} wrongly: {dtype} {list(shape)}.")
    if end > data_bytes:
        raise BadModel(f"{file.name} is cut short: the tensor {name!r} ends behind the file.")
    return Tensor(dtype=dtype, shape=shape, nbytes=end - begin)


def _naturals(values: Iterable[Any]) -> list[int]:
    """`values` as a list, if all are whole numbers of at least zero; raises ValueError."""
    numbers = list(values)
    if not all(type(n) is int and n >= 0 for n in numbers):
        raise ValueError("not whole numbers")
    return numbers


def read_tensors(directory: Path) -> dict[str, Tensor]:
    """Every tensor of a model, from the headers alone; raises BadModel."""
    tensors: dict[str, Tensor] = {}
    for file in weight_files(directory):
        tensors.update(read_header(file))
    missing = sorted(set(read_index(directory) or {}) - set(tensors))
    if missing:
        raise BadModel(f"{directory.name} lacks the tensor {missing[0]!r} that its index lists.")
    return tensors
