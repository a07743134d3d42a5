"""Models of the atlas: whole, as instances that share their arrays, and with poisoned weights."""

from __future__ import annotations

import io
import pkgutil
from collections.abc import Callable
from contextlib import redirect_stdout
from copy import deepcopy
from functools import cache
from importlib import import_module
from math import sqrt
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx_lm.models
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.models.prism_hadamard_qwen35 import HadamardQuantizedLinear
from mlx_lm.utils import _get_classes, quantize_model

from core.models.made.maker import random_model
from core.models.slicing.probe import ModelProbe
from tests.support.atlas import SEEDS, config_of


def build(variant: str, dtype: mx.Dtype = mx.float32, bits: int | None = None) -> nn.Module:
    """The whole model of a variant, the same on every call; `bits` quantises as mlx_lm does, in groups of 32."""
    model = random_model(config_of(variant), SEEDS.get(variant, 0), dtype)
    packed = [module for module in model.modules() if isinstance(module, HadamardQuantizedLinear)]
    for seed, module in enumerate(packed):
        _pack(module, seed)
    if bits:
        quantize_model(model, {}, 32, bits, quant_predicate=_wanted(model))
    return model


def untrained(variant: str) -> nn.Module:
    """An instance whose weights are not made until something computes with them."""
    model_class, args = _classed(variant)
    model: nn.Module = model_class(deepcopy(args))
    return model


def twin(variant: str, whole: nn.Module, bits: int | None = None) -> nn.Module:
    """Another instance with the same arrays, whose layers a stage can change."""
    model = untrained(variant)
    if bits:
        quantize_model(model, {}, 32, bits, quant_predicate=_wanted(model))
    model.update(whole.parameters())
    model.eval()
    return model


def poison(model: nn.Module, probe: ModelProbe, own: range, *, head: bool) -> None:
    """Set every weight to NaN that a stage does not own: layers outside `own`, and the weights only a head reads."""
    wanted = probe.shared | (probe.embed | probe.output if head else set())
    foreign = []
    for path, array in tree_flatten(model.parameters()):
        layer = probe.layer_of(path)
        if (layer not in own) if layer is not None else path not in wanted:
            floating = mx.issubdtype(array.dtype, mx.floating)
            foreign.append((path, mx.full(array.shape, mx.nan if floating else 0, array.dtype)))
    model.update(tree_unflatten(foreign))


def architectures() -> dict[str, Any]:
    """The modules of mlx_lm.models that define a Model, by name; None where the import fails here."""
    found: dict[str, Any] = {}
    for info in pkgutil.iter_modules(mlx_lm.models.__path__):
        try:
            with redirect_stdout(io.StringIO()):
                module = import_module(f"mlx_lm.models.{info.name}")
        except SystemExit:  # olmo exits the process where its package is missing
            found[info.name] = None
            continue
        if hasattr(module, "Model"):
            found[info.name] = module.Model
    return found


@cache
def _classed(variant: str) -> tuple[Any, Any]:
    """The family's Model and its arguments, cached: making them costs more than the model."""
    config = config_of(variant)
    model_class, args_class = _get_classes(config)
    return model_class, args_class.from_dict(config)


def _wanted(model: nn.Module) -> Callable[[str, nn.Module], bool]:
    """The family's own choice of quantised layers; some ask for groups that are too wide here."""
    own = getattr(model, "quant_predicate", None)
    return lambda path, module: bool(own(path, module)) if own else True


def _pack(module: Any, seed: int) -> None:
    """Pack random weights (random numbers are no packed weights), and turn signs into signs."""
    rows, words = module.weight.shape
    reach = 1.0 / sqrt(words * 16) if module.block else 0.1
    weights = reach * mx.random.normal((rows, words * 16), key=mx.random.key(seed)).astype(mx.float16)
    module.weight, module.scales, module.biases = mx.quantize(weights, group_size=128, bits=2)
    if module.block:
        module.signs = mx.where(mx.random.bernoulli(0.5, module.signs.shape, key=mx.random.key(seed)), 1.0, -1.0)
