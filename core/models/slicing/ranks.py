"""A rank's part of every layer, cut by mlx-lm's own `shard` before any byte is read and before a group exists.

`shard` runs on lazy arrays and leaves each weight as a lazy part. The group opens much later, when the links between
the Macs are up; until then a `Rank` replaces it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from core.errors import UnsupportedModel
from core.models.slicing.building import FAILURES, first_line
from core.models.slicing.part_reads import Cut, noting_cuts
from core.models.slicing.probe import ModelProbe

BY_LAYERS: Final = "Load it with --parallelism pp: then each Mac has layers of its own."


class Rank:
    """Rank `index` of `count`: the part of a group's interface that `shard` uses."""

    def __init__(self, index: int, count: int) -> None:
        self.index, self.count = index, count

    def rank(self) -> int:
        return self.index

    def size(self) -> int:
        return self.count


def shard(model: nn.Module, rank: Rank) -> dict[str, Cut]:
    """Reduce the lazily built `model` to the part of `rank`; returns the cuts of its parameters, by path. Raises
    UnsupportedModel if mlx-lm cannot divide this family, or not among `rank.count`; `model` is unusable then.
    """
    inner = _sharder(model)
    if inner is None:
        family = type(model).__module__.rpartition(".")[2]
        raise UnsupportedModel(f"mlx-lm cannot divide the layers of the family {family} over several Macs.", BY_LAYERS)
    try:
        with noting_cuts() as cuts:
            inner.shard(rank)
    except FAILURES as error:
        what = f"The layers of this model cannot be divided over {rank.count} Macs: {first_line(error)}."
        raise UnsupportedModel(what, BY_LAYERS) from error
    # a tensor that a family changes after the cut is no part of the file's tensor any more
    return {path: cuts[id(array)] for path, array in tree_flatten(model.parameters()) if id(array) in cuts}


def join(model: nn.Module, rank: Rank, group: mx.distributed.Group) -> None:
    """Replace the `rank` that `model` was sharded for by `group`, so that it can compute."""
    for module, name in _places(model, rank):
        object.__setattr__(module, name, group)


def computes_apart(model: nn.Module, rank: Rank, probe: ModelProbe) -> bool:
    """Whether one rank alone can compute logits from the last layer's result."""
    inside = {id(module) for path, module in model.named_modules() if probe.layer_of(path) is not None}
    return bool(probe.boundaries) and all(id(module) in inside for module, _ in _places(model, rank))


def _sharder(model: nn.Module) -> Any:
    layers = [id(layer) for layer in model.layers]
    for _, module in model.named_modules():
        if hasattr(module, "shard") and [id(layer) for layer in module.layers] == layers:
            return module
    return None


def _places(model: nn.Module, rank: Rank) -> Iterator[tuple[nn.Module, str]]:
    """Modules and attribute names that hold the group."""
    for module in model.modules():
        for name in [name for name, value in vars(module).items() if value is rank]:
            yield module, name
