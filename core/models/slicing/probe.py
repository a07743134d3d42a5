"""Traces one lazy forward of a whole model, computing nothing, to learn the structure of its family.

Finds the order of the layers, the cache of each, the arrays passed between them, and the parameters read before the
first and after the last layer; from these, the legal cuts. Layers that share a cache, keys or another unsent value stay
together: some borrow the keys of an earlier layer, as in gemma.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import make_prompt_cache

from core.errors import IllegalCut, UnsupportedModel
from core.models.slicing.boundary import POSITIONS, ROWS, Boundary, SideInput, row_axis
from core.models.slicing.forward_tracer import Call, ForwardTracer, ids, is_float, side_inputs


class ModelProbe:
    """Result of one dry run of `model`."""

    def __init__(self, model: nn.Module) -> None:
        layers = list(model.layers)
        paths = {id(module): path for path, module in model.named_modules()}
        self.layers = len(layers)
        self.layer_paths = [paths[id(layer)] for layer in layers]  # parameter path of each layer
        caches = make_prompt_cache(model)
        tracer = ForwardTracer(caches)
        outside = [(p, m) for p, m in model.named_modules() if self.layer_of(p) is None]
        with tracer.on(outside, layers):
            logits = model(mx.zeros((ROWS, POSITIONS), mx.int32), cache=caches)
        self.vocab = int(logits.shape[-1])
        # parameters outside the layers, by path, read before the layers, between them, and after them
        self.embed, self.shared, self.output = tracer.read
        self.cache_of: list[int | None] = [None] * self.layers  # index in the model's cache list
        self.boundaries: list[Boundary] = []  # after each layer
        # positions c where layers below c and from c on may run apart; c = number of layers: before norm and head
        self.cuts: frozenset[int] = frozenset()
        self.embed_caches: frozenset[int] = frozenset()  # indices of caches written by the embedding
        self.reads_caches = False  # layers read keys of another layer's cache, bypassing its mask
        self._sides: dict[int, SideInput] = {}
        self.unsplittable = self._judge(tracer.calls, len(caches), tracer.embedding)
        # the traced classes form a cycle with the records, which would keep every tensor's file open until it is found
        tracer.calls.clear()

    @property
    def reveals_tokens(self) -> bool:
        """Whether side inputs cross a cut."""
        return any(self.sides_behind(cut) for cut in self.cuts)

    def sides_of(self, layer: int) -> dict[int | str, int]:
        """Side inputs among a layer's arguments: position or name -> number of the side input."""
        return {key: n for n, side in self._sides.items() for at, key in side.uses if at == layer}

    def sides_behind(self, cut: int) -> dict[int, SideInput]:
        """Side inputs, by number, read by layers from `cut` on."""
        return {n: side for n, side in self._sides.items() if side.last >= cut}

    def layer_of(self, path: str) -> int | None:
        for layer, prefix in enumerate(self.layer_paths):
            if path == prefix or path.startswith(prefix + "."):
                return layer
        return None

    def _judge(self, calls: list[Call], cache_count: int, embedding: set[int]) -> str:
        """Set the fields; returns why the model can't be cut, or "". `embedding`: caches written before the layers."""
        if not calls:
            return "it does not call its layers one by one"
        if [call.layer for call in calls] != list(range(self.layers)):
            return "its layers run more than once for a token, or not in their order"
        self.cache_of = [call.cache for call in calls]
        self.embed_caches = frozenset(range(cache_count)) - {index for index in self.cache_of if index is not None}
        if not self.embed_caches <= embedding or any(call.touched & self.embed_caches for call in calls):
            return "it keeps a cache that belongs to none of its layers"
        if not all(call.is_plain for call in calls):
            return "its layers pass on something other than arrays with one entry per token"
        aside = _cuts_at_borrowed_keys(calls)
        sides = side_inputs(calls)
        if aside is None or sides is None:
            return "its layers read values whose origin is not clear"
        self.reads_caches = bool(aside)
        self._sides = sides
        sent = [_sent(call, after) for call, after in pairwise(calls)]
        sent.append(sent[-1] if sent else frozenset({0}))
        behind = [self.sides_behind(cut) for cut in range(1, self.layers + 1)]
        self.boundaries = [Boundary(c.value, s, b) for c, s, b in zip(calls, sent, behind, strict=True)]
        forbidden = _cuts_at_shared_caches(calls) | _cuts_at_far_reads(calls) | aside
        self.cuts = frozenset(range(1, self.layers + 1)) - forbidden
        return "" if self.layers in self.cuts and len(self.cuts) > 1 else "all its layers share state"


def legal_cuts(probe: ModelProbe) -> frozenset[int]:
    """Positions where a ring may cut the model; empty if it must stay in one process."""
    return probe.cuts - {probe.layers} if probe.layers in probe.cuts else frozenset()


def check_cuts(probe: ModelProbe, start: int, stop: int, *, embed: bool, output: bool) -> None:
    """Raise IllegalCut or UnsupportedModel unless [start, stop) with embedding and head can be a stage."""
    if not 0 <= start < stop <= probe.layers:
        raise IllegalCut(f"Layers [{start}, {stop}) are not in a model of {probe.layers} layers.")
    if embed != (start == 0):
        raise IllegalCut("Only the stage with layer 0 owns the embedding.")
    edges = {start, stop} - {0, probe.layers}
    apart = (stop == probe.layers) != output
    if not edges and not apart:
        return
    if probe.unsplittable:
        what = f"This model cannot be split over several Macs: {probe.unsplittable}."
        raise UnsupportedModel(what, "Load it on one Mac, or choose another model.")
    for cut in sorted(edges | ({probe.layers} if apart else set())):
        if cut not in probe.cuts:
            legal = ", ".join(str(c) for c in sorted(legal_cuts(probe)))
            what = f"This model cannot be cut before layer {cut}, because layers on both sides share state."
            raise IllegalCut(what, f"It can be cut before layers {legal}." if legal else "Load it on one Mac.")


def _sent(call: Call, after: Call) -> frozenset[int]:
    """Leaves of a return value that the next layer reads; always with the first, which some families scale between."""
    read = {id(array) for array in after.given}
    return frozenset({0} | {i for i, a in enumerate(call.made) if id(a) in read and row_axis(a) is not None})


def _cuts_at_shared_caches(calls: list[Call]) -> set[int]:
    """Cuts between two layers that use the same cache."""
    illegal: set[int] = set()
    first: dict[int, int] = {}
    for call in calls:
        if call.cache is not None:
            illegal.update(range(first.setdefault(call.cache, call.layer) + 1, call.layer + 1))
    return illegal


def _cuts_at_far_reads(calls: list[Call]) -> set[int]:
    """Cuts that a value would have to skip: an array that is read later than in the next layer or isn't per token (an
    earlier layer's keys, which grow with the context), or an entry of a dict that layers share.
    """
    illegal: set[int] = set()
    made: dict[int, tuple[int, bool]] = {}
    written: dict[Any, int] = {}
    for call in calls:
        for array in call.given:
            if id(array) in made:
                source, travels = made[id(array)]
                illegal.update(range(source + 1, call.layer + 1) if not travels else range(source + 1, call.layer))
        made.update((id(array), (call.layer, row_axis(array) is not None)) for array in call.made)
        for key in call.read & written.keys():
            illegal.update(range(written[key] + 1, call.layer + 1))
        written.update(dict.fromkeys(call.written, call.layer))
    return illegal


def _cuts_at_borrowed_keys(calls: list[Call]) -> set[int] | None:
    """Cuts between a layer and a later one that gets its keys through outside code; None if their source is unknown."""
    owner = {call.cache: call.layer for call in calls if call.cache is not None}
    illegal: set[int] = set()
    known = ids(calls[0].given)
    sources: set[int] = set()
    for call in calls:
        sources |= call.touched
        for array in call.given:
            if id(array) not in known and _looks_like_keys(array):
                if not sources:
                    return None
                illegal.update(range(min(owner[c] for c in sources) + 1, call.layer + 1))
        known |= ids(call.made)
    return illegal


def _looks_like_keys(array: mx.array) -> bool:
    return array.ndim == 4 and array.shape[-1] != POSITIONS and row_axis(array) is None and is_float(array)
