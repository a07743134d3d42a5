"""One rank's part of every layer, as mlx-lm's own `shard` cuts it: without a byte read, and before there is a group.

`shard` is called on promises, so it leaves each weight as a promise of the rank's part of it. A group is open long
after that, when the links between the Macs stand; until then a `Rank` stands in its place.
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
    """Number `index` of `count` ranks: as much of a group as `shard` asks for."""

    def __init__(self, index: int, count: int) -> None:
        self.index, self.count = index, count

    def rank(self) -> int:
        """As that of a group."""
        return self.index

    def size(self) -> int:
        """As that of a group."""
        return self.count


def shard(model: nn.Module, rank: Rank) -> dict[str, Cut]:
    """Leave of the lazily built `model` what `rank` has of it; how its parameters were cut, by path. Raises
    UnsupportedModel where mlx-lm cannot divide this family, or not by so many; the model is of no use then.
    """
    inner = _sharder(model)
    if inner is None:
        family = type(model).__module__.rpartition(".")[2]
        raise UnsupportedModel(f"mlx-lm cannot divide the layers of the family {family} over several Macs.", BY_LAYERS)
    try:
        with noting_cuts() as cuts:
            inner.shard(rank)
    except FAILURES as error:
        raise UnsupportedModel(
            f"The layers of this model cannot be divided over {rank.count} Macs: {first_line(error)}.", BY_LAYERS
        ) from error
    # what a family changes behind the cut is no part of the tensor any more
    return {path: cuts[id(array)] for path, array in tree_flatten(model.parameters()) if id(array) in cuts}


def join(model: nn.Module, rank: Rank, group: mx.distributed.Group) -> None:
    """Put `group` in the place of the `rank` that `model` was sharded for: it can compute now."""
    for module, name in _places(model, rank):
        object.__setattr__(module, name, group)


def computes_apart(model: nn.Module, rank: Rank, probe: ModelProbe) -> bool:
    """Whether one rank can compute logits of what left the last layer, without the others."""
    inside = {id(module) for path, module in model.named_modules() if probe.is_inside(path)}
    return bool(probe.boundaries) and all(id(module) in inside for module, _ in _places(model, rank))


def _sharder(model: nn.Module) -> Any:
    """The model, or of a model that only wraps another one, that one."""
    layers = [id(layer) for layer in model.layers]
    for _, module in model.named_modules():
        if hasattr(module, "shard") and [id(layer) for layer in module.layers] == layers:
            return module
    return None


def _places(model: nn.Module, rank: Rank) -> Iterator[tuple[nn.Module, str]]:
    """Where modules keep the group."""
    for module in model.modules():
        for name in [name for name, value in vars(module).items() if value is rank]:
            yield module, name
