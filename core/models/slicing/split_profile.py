"""Cuts, batching and cache sizes of a model, found by a dry run; a plain value, so planning needs no mlx."""

from __future__ import annotations

from collections.abc import Mapping

from core.events import Value, WireType
from core.models.files.cache_size import CacheSize


class SplitProfile(Value, frozen=True, kw_only=True):
    """How a model can be split and batched, as `core.models.slicing.examine` reports it."""

    layers: int
    cuts: tuple[int, ...]  # positions c, ascending: layers below c and from c on may run on different Macs
    caches: tuple[CacheSize, ...]  # per layer
    unsplittable: str = ""  # why the model must stay on one Mac, as the end of a sentence
    #: after a cut, layers read per-token values, so every Mac of the ring can find the prompt's tokens
    reveals_tokens: bool = False
    one_row: str = ""  # why rows cannot share a batch, as the end of a sentence
    whole_bits: str = ""  # why the caches cannot be quantised
    boundary_bytes: tuple[int, ...] = ()  # per token and row, over a cut after each layer; empty without cuts
    wire_bytes: Mapping[WireType, tuple[int, ...]] = {}  # the same, for hidden states sent as that dtype
