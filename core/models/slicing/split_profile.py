"""What a dry run of a model showed about its cuts, batches and caches: a plain value, so a plan needs no mlx."""

from __future__ import annotations

from collections.abc import Mapping

from core.events import Value, WireType
from core.models.files.cache_size import CacheSize


class SplitProfile(Value, frozen=True, kw_only=True):
    """How a model may be split and batched. `core.models.slicing.examine` finds it out in a child process.

    `cuts`: the positions c, ascending, at which layers below c and from c on may run on different Macs.
    `unsplittable`: why the model has to stay on one Mac, as the end of a sentence; empty where it can be cut.
    `reveals_tokens`: behind a cut, layers read values made from one token id each, so every Mac of the ring could tell
    the prompt's tokens; a plan has to say so.
    `one_row`: why rows cannot share a batch, as the end of a sentence; empty where they can.
    `whole_bits`: why its caches cannot be quantised; empty where they can.
    `boundary_bytes[i]`: bytes that cross a cut behind layer i for one token of one row; empty where nothing can be cut.
    `wire_bytes`: the same, where hidden states travel as that type.
    `caches[i]`: the size of layer i's cache.
    """

    layers: int
    cuts: tuple[int, ...]
    caches: tuple[CacheSize, ...]
    unsplittable: str = ""
    reveals_tokens: bool = False
    one_row: str = ""
    whole_bits: str = ""
    boundary_bytes: tuple[int, ...] = ()
    wire_bytes: Mapping[WireType, tuple[int, ...]] = {}
