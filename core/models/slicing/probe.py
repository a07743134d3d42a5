"""One lazy forward of a whole model that is watched and never evaluated: what a slice needs to know about a family.

It finds in which order layers run, which cache each one uses, which arrays pass from layer to layer, which parameters
are read before the first layer and which after the last, and so where the model may be cut.
"""

from __future__ import annotations

from itertools import pairwise

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import make_prompt_cache

from core.models.slicing.boundary import POSITIONS, ROWS, Boundary, SideInput, row_axis
from core.models.slicing.cut_restrictions import cuts_at_borrowed_keys, forbidden_cuts
from core.models.slicing.forward_tracer import Call, ForwardTracer, side_inputs


class ModelProbe:
    """What one dry run of `model` showed.

    `layer_paths[i]`: parameter path of layer i. `cache_of[i]`: index of its cache in the model's cache list, or None.
    `embed_caches`: indexes of caches in which the embedding keeps earlier tokens. `boundaries[i]`: what leaves layer i.
    `cuts`: positions c such that layers below c and from c on may run apart; c = number of layers means that norm and
    head may run apart from the last layer. `unsplittable`: why there is no cut at all. `reveals_tokens`: layers behind
    the first read values made from one token each. `reads_caches`: layers read keys of another layer's cache, past that
    cache's own mask. `embed`, `output` and `shared` name the parameters outside the layers that are read before them,
    after them, and between.
    """

    def __init__(self, model: nn.Module) -> None:
        layers = list(model.layers)
        paths = {id(module): path for path, module in model.named_modules()}
        self.layers = len(layers)
        self.layer_paths = [paths[id(layer)] for layer in layers]
        caches = make_prompt_cache(model)
        tracer = ForwardTracer(caches)
        outside = [(p, m) for p, m in model.named_modules() if not self.is_inside(p)]
        with tracer.on(outside, layers):
            logits = model(mx.zeros((ROWS, POSITIONS), mx.int32), cache=caches)
        self.vocab = int(logits.shape[-1])
        self.embed, self.shared, self.output = tracer.read
        self.cache_of: list[int | None] = [None] * self.layers
        self.boundaries: list[Boundary] = []
        self.cuts: frozenset[int] = frozenset()
        self.embed_caches: frozenset[int] = frozenset()
        self.reads_caches = False
        self._sides: dict[int, SideInput] = {}
        self.unsplittable = self._judge(tracer.calls, len(caches), tracer.embedding)
        # the watched classes form a cycle with the notes, which would hold every tensor's file open until it is found
        tracer.calls.clear()

    @property
    def reveals_tokens(self) -> bool:
        """Whether side inputs cross some cut."""
        return any(self.sides_behind(cut) for cut in self.cuts)

    def sides_of(self, layer: int) -> dict[int | str, int]:
        """Arguments of a layer that are side inputs: position or name -> number of the side input."""
        return {key: n for n, side in self._sides.items() for at, key in side.uses if at == layer}

    def sides_behind(self, cut: int) -> dict[int, SideInput]:
        """Side inputs, by number, that layers from `cut` on read."""
        return {n: side for n, side in self._sides.items() if side.last >= cut}

    def is_inside(self, path: str) -> bool:
        """Whether a module or parameter path belongs to one of the layers."""
        return self.layer_of(path) is not None

    def layer_of(self, path: str) -> int | None:
        """The layer that a parameter path belongs to."""
        for layer, prefix in enumerate(self.layer_paths):
            if path == prefix or path.startswith(prefix + "."):
                return layer
        return None

    def _judge(self, calls: list[Call], cache_count: int, embedding: set[int]) -> str:
        """Fills in what the calls tell; returns why the model cannot be cut, or nothing. `embedding`: caches that were
        written before the first layer.
        """
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
        aside = cuts_at_borrowed_keys(calls)
        sides = side_inputs(calls)
        if aside is None or sides is None:
            return "its layers read values whose origin is not clear"
        self.reads_caches = bool(aside)
        self._sides = sides
        sent = [_sent(call, after) for call, after in pairwise(calls)]
        sent.append(sent[-1] if sent else frozenset({0}))
        behind = [self.sides_behind(cut) for cut in range(1, self.layers + 1)]
        self.boundaries = [Boundary(c.value, s, b) for c, s, b in zip(calls, sent, behind, strict=True)]
        self.cuts = frozenset(range(1, self.layers + 1)) - forbidden_cuts(calls, aside)
        return "" if self.layers in self.cuts and len(self.cuts) > 1 else "all its layers share state"


def _sent(call: Call, after: Call) -> frozenset[int]:
    """Leaves of a return value that the next layer reads; the first one always, as some families scale it between."""
    read = {id(array) for array in after.given}
    return frozenset({0} | {i for i, a in enumerate(call.made) if id(a) in read and row_axis(a) is not None})
