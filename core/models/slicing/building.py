"""Builds a whole model without reading any tensor, and names the faulty file if that fails.

`mlx_lm.utils.load_model(lazy=True)` reads headers only; each tensor is a lazy read. `sanitize`, quantised formats and
names are therefore mlx-lm's own. The building is traced, because mlx-lm's errors about missing or misshapen tensors
name no file.
"""

from __future__ import annotations

import glob
import io
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import mlx.core as mx
import mlx.nn as nn
import mlx_lm.utils as mlx_utils
from mlx.utils import tree_flatten

from core.errors import BadModel, UnsupportedModel
from core.models.files.checked_files import OTHER_VERSION
from core.models.files.model_folder import ModelFolder
from core.models.files.safetensors import SafetensorsHeader
from core.models.files.suitability import check_architecture, unknown_architecture

# errors of mlx, mlx-lm and Python's parsers for malformed files
FAILURES: Final = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, OSError, RuntimeError, TypeError,
    ValueError,
)  # fmt: skip
_UNREADABLE: Final = ("F8_E5M2", "F64")
_OTHER_MODEL: Final = (
    "config.json and the weights don't belong together: download the model again, or choose another version of it."
)


# mlx names an operation in the text of its graph by its address, which is valid as long as an array made by it exists
_PROMISE: Final = re.compile(r"^\{ (\d+) \[label =\"Load\"", re.MULTILINE)


class Built(NamedTuple):
    """A model with unread tensors."""

    model: nn.Module
    # the files' arrays by tensor name; they share memory with the model once read, so drop them before evaluating its
    # parameters
    tensors: dict[str, mx.array]


def build(folder: ModelFolder) -> Built:
    """Build the model of `folder` without reading a tensor. Raises BadModel, UnsupportedModel."""
    check_architecture(folder.config, folder.name)
    _check_types(folder.headers)
    tracer = _BuildTracer(folder.name, folder.headers)
    try:
        with _plain_path(folder.path) as path:
            model, _ = mlx_utils.load_model(path, lazy=True, get_model_classes=tracer.classes)
    except FAILURES as error:
        raise tracer.explained(error) from error
    # the traced class forms a cycle with the tracer, which would keep the tensors until the garbage collector finds it
    object.__setattr__(model, "__class__", tracer.family)
    tensors, tracer.tensors = tracer.tensors, {}
    return Built(model, tensors)


@contextmanager
def _plain_path(folder: Path) -> Iterator[Path]:
    """A path of the folder without characters that mlx-lm would take for a pattern; MLX opens the files at once."""
    if glob.escape(str(folder)) == str(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory() as below:
        link = Path(below) / "model"
        link.symlink_to(folder.absolute())
        yield link


def first_line(error: BaseException) -> str:
    """First line of a library's error, without a full stop."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300].rstrip(".")


def _check_types(headers: Mapping[str, SafetensorsHeader]) -> None:
    for file, header in headers.items():
        for name, tensor in header.tensors.items():
            if tensor.dtype in _UNREADABLE:
                what = f"{file} holds the tensor {name!r} as {tensor.dtype}, which MLX cannot read."
                raise UnsupportedModel(what, OTHER_VERSION)


class _BuildTracer:
    """Follows mlx-lm through building one model, by a class between its steps and the family's Model."""

    def __init__(self, name: str, headers: Mapping[str, SafetensorsHeader]) -> None:
        self.family: type[nn.Module] = nn.Module
        self.tensors: dict[str, mx.array] = {}
        self._name = name
        self._headers = headers
        self._architecture = ""
        self._at_fault = "The weights cannot be opened"

    def classes(self, config: dict[str, Any]) -> tuple[type[nn.Module], type]:
        """The family's Model, traced, and its ModelArgs; raises UnsupportedModel for an unknown family."""
        self._architecture = config["model_type"]
        try:
            self.family, arguments = mlx_utils._get_classes(config)
        # one module of mlx-lm calls exit() if an optional package is missing
        except (ValueError, AttributeError, SystemExit) as error:
            raise unknown_architecture(self._architecture, self._name) from error
        self._at_fault = f"config.json does not describe a model of the architecture {self._architecture!r}"
        return self._traced(self.family), arguments

    def _traced(self, family: type[nn.Module]) -> type[nn.Module]:
        def sanitize(model: Any, weights: dict[str, mx.array]) -> Any:
            self.tensors = dict(weights)
            self._at_fault = f"The tensors do not belong to the architecture {self._architecture!r}"
            clean = family.sanitize(model, weights) if hasattr(family, "sanitize") else weights
            self._at_fault = "config.json describes the quantisation wrongly"
            return clean

        def load_weights(model: Any, weights: list[tuple[str, mx.array]], strict: bool = True) -> Any:
            self._check_fit(dict(tree_flatten(model.parameters())), dict(weights))
            return family.load_weights(model, weights, strict)

        return type(family.__name__, (family,), {"sanitize": sanitize, "load_weights": load_weights})

    def _check_fit(self, asked: Mapping[str, mx.array], given: Mapping[str, mx.array]) -> None:
        """Raise BadModel unless the weights have the model's names and shapes."""
        if missing := [path for path in asked if path not in given]:
            what = f"No file of {self._name} holds {missing[0]!r}{_and_more(missing)}, which config.json asks for."
            raise BadModel(what, _OTHER_MODEL)
        if extra := sorted(given.keys() - asked.keys()):
            what = f"{self._source(given[extra[0]])}{_and_more(extra)}, which config.json has no place for."
            raise BadModel(what, _OTHER_MODEL)
        for path, array in asked.items():
            if array.shape != given[path].shape:
                made = f"{self._source(given[path])}, which makes {path!r} {list(given[path].shape)}"
                raise BadModel(f"{made}; config.json asks for {list(array.shape)}.", _OTHER_MODEL)

    def _source(self, array: mx.array) -> str:
        """First part of a sentence about the first tensor that `array` is made of."""
        names = origins(self.tensors, [array])
        for file, header in self._headers.items():
            for name in sorted(names & header.tensors.keys()):
                return f"{file} in {self._name} holds {name!r}"
        return f"{self._name} makes a weight without a tensor"

    def explained(self, error: BaseException) -> BadModel:
        if isinstance(error, KeyError) and self.tensors and "." in str(error):
            return BadModel(f"No file of {self._name} holds {error}, which {self._architecture!r} needs.", _OTHER_MODEL)
        return BadModel(f"mlx-lm cannot build {self._name}. {self._at_fault}: {first_line(error)}.", OTHER_VERSION)


def _and_more(paths: list[str]) -> str:
    return f" and {len(paths) - 1} more" if len(paths) > 1 else ""


# a family's `sanitize` may rename, stack or split tensors, or undo fp8: it leaves each array as a graph of lazy reads
def origins(tensors: Mapping[str, mx.array], arrays: Iterable[mx.array]) -> frozenset[str]:
    """Names of the `tensors` (as returned by `mx.load`) that are read when `arrays` are evaluated. A tensor that was
    already evaluated is no longer in the graph; it counts, because building the arrays needed it.
    """
    promises = {name: _promises([tensor]) for name, tensor in tensors.items()}
    wanted = _promises(arrays)
    return frozenset(name for name, own in promises.items() if not own or own & wanted)


def _promises(arrays: Iterable[mx.array]) -> set[str]:
    text = io.StringIO()
    mx.export_to_dot(text, *arrays)
    return set(_PROMISE.findall(text.getvalue()))
