"""Loads one slice of a model: mlx-lm builds the whole model lazily, and only the slice's arrays are ever read.

`mlx_lm.utils.load_model(lazy=True)` reads headers; each tensor stays a promise to read its bytes. So `sanitize`, all
quantised formats and the strict check of names are mlx-lm's own, on all names. The promises outside the slice are then
replaced by zeros that nobody evaluates, which also closes the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx_lm.utils as mlx_utils
from mlx.utils import tree_flatten, tree_unflatten

from core.errors import BadModel, UnsupportedModel
from core.models.headers import read_config, read_tensors
from core.models.probe import Probe
from core.models.slots import Slice, check_cuts

Progress = Callable[[int, int], None]


def load_slice(
    directory: Path, start: int, stop: int, *, embed: bool, output: bool, on_progress: Progress | None = None
) -> Slice:
    """Layers [start, stop) of the model in `directory`, in memory, with its embedding and its norm and head if asked.

    `on_progress(done_bytes, total_bytes)` is called as tensors arrive. Must run in the thread that will run the slice.
    Raises ModelNotFound, BadModel (missing, cut or hostile files), UnsupportedModel (unknown architecture, or one that
    cannot be split) and IllegalCut.
    """
    model = build_lazily(directory)
    try:
        probe = Probe(model)
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise UnsupportedModel(f"The model in {directory.name} does not run: {error}.") from error
    check_cuts(probe, start, stop, embed=embed, output=output)
    kept = _keep_only(model, probe, range(start, stop), embed=embed, output=output)
    sizes = sum(array.nbytes for array in kept)
    _evaluate(kept, sizes, on_progress, directory)
    mx.eval(list(_private_arrays(model)))
    stage = Slice(model, probe, start, stop, embed=embed, output=output)
    stage.weight_bytes = sizes
    return stage


def build_lazily(directory: Path) -> nn.Module:
    """The whole model of `directory`, no tensor read yet; raises ModelNotFound, BadModel or UnsupportedModel."""
    config = read_config(directory)
    if "model_file" in config:
        raise UnsupportedModel(
            f"{directory.name} brings its own code ({config['model_file']!r}), which macluster never runs.",
            "Choose a model whose architecture mlx-lm knows.",
        )
    read_tensors(directory)
    try:
        model, _ = mlx_utils.load_model(directory, lazy=True, get_model_classes=_classes)
    except (AttributeError, IndexError, KeyError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise BadModel(f"mlx-lm cannot build the model in {directory.name}: {_first_line(error)}") from error
    return model


def _classes(config: dict[str, Any]) -> tuple[type[nn.Module], type]:
    """The family's Model and ModelArgs; raises UnsupportedModel for a family that mlx-lm does not have."""
    try:
        found: tuple[type[nn.Module], type] = mlx_utils._get_classes(config)
    # one module of mlx-lm calls exit() where an optional package is missing
    except (ValueError, AttributeError, SystemExit) as error:
        raise UnsupportedModel(
            f"mlx-lm on this Mac does not know the architecture {config['model_type']!r}.",
            "Choose another model, or wait for a version of macluster that knows it.",
        ) from error
    return found


def _keep_only(model: nn.Module, probe: Probe, own: range, *, embed: bool, output: bool) -> list[mx.array]:
    """Replaces every parameter outside the slice by zeros of its shape; returns the parameters of the slice."""
    wanted = probe.shared | (probe.embed if embed else set()) | (probe.output if output else set())
    kept: list[mx.array] = []
    stubs: list[tuple[str, mx.array]] = []
    for path, array in tree_flatten(model.parameters()):
        layer = probe.layer_of(path)
        if (layer in own) if layer is not None else path in wanted:
            kept.append(array)
        else:
            stubs.append((path, mx.zeros(array.shape, array.dtype)))
    model.update(tree_unflatten(stubs))
    return kept


def _evaluate(kept: list[mx.array], total: int, on_progress: Progress | None, directory: Path) -> None:
    done = 0
    for array in kept:
        try:
            mx.eval(array)
        except (OSError, RuntimeError) as error:
            raise BadModel(f"A weight of {directory.name} cannot be read: {_first_line(error)}") from error
        done += array.nbytes
        if on_progress:
            on_progress(done, total)
    mx.clear_cache()


def _private_arrays(model: nn.Module) -> Iterator[mx.array]:
    """Arrays that are no parameters, such as rope frequencies; the forward needs them on every stage."""
    for module in model.modules():
        for name, value in module.items():
            if name.startswith("_"):
                yield from (leaf for _, leaf in tree_flatten(value) if isinstance(leaf, mx.array))


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
