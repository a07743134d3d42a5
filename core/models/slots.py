"""Runs any contiguous slice of any mlx-lm model without a change to its code.

The family's own Model keeps its full-length layer list. Every layer becomes a slot: layers of the slice compute, all
others return the value that crossed the cut, and the slot at the end of the slice ends the forward. What the model
does before its layers runs on zero token ids where the slice does not embed; MLX is lazy, so nobody evaluates it.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import make_prompt_cache

from core.errors import IllegalCut, StageFailed, UnsupportedModel
from core.models.caches import Phantom, move_phantoms, stage_caches
from core.models.probe import Probe, swap_class


class _StageDone(Exception):
    """Ends a forward behind the last own layer; no error."""

    def __init__(self, value: Any) -> None:
        self.value = value


class _Pass:
    """What the slots do during one forward: layers in `own` compute, the others return `value`; `last` ends it."""

    def __init__(self) -> None:
        self.own = range(0)
        self.last: int | None = None
        self.value: Any = None


class Slice:
    """Layers [start, stop) of a model of `layers` layers; everything is lazy and belongs to the thread that made it.

    `boundary_bytes_per_token`: bytes of all boundary arrays that leave the slice, for one position of one row.
    `weight_bytes`: bytes of the parameters it keeps. `vocab_size`: token ids must be below it; mlx does not check.
    """

    def __init__(self, model: nn.Module, probe: Probe, start: int, stop: int, *, embed: bool, output: bool) -> None:
        check_cuts(probe, start, stop, embed=embed, output=output)
        self.layers, self.start, self.stop = probe.layers, start, stop
        self.vocab_size = probe.vocab
        self.weight_bytes = 0
        self._model = model
        self._probe = probe
        self._embeds, self._outputs = embed, output
        self._whole = embed and output and (start, stop) == (0, probe.layers)
        self.boundary_bytes_per_token = probe.boundaries[stop - 1].bytes_per_token if probe.boundaries else 0
        self._own = {c for c in probe.cache_of[start:stop] if c is not None}
        self._pass = _Pass()
        if probe.boundaries:
            for index, layer in enumerate(list(model.layers)):
                _make_slot(layer, index, self._pass)

    def new_caches(self) -> list[Any]:
        """A full-length cache list for new rows: own entries are real, others are aliases or stand-ins."""
        whole: list[Any] = make_prompt_cache(self._model)
        return stage_caches(whole, self._own) if self._probe.boundaries else whole

    def own(self, caches: list[Any]) -> list[Any]:
        """The entries that belong to this slice: what may be trimmed, merged or saved, each once."""
        return [caches[i] for i in sorted(self._own)] if self._probe.boundaries else caches

    def states(self, caches: list[Any]) -> list[Any]:
        """What must be evaluated with each step: not all of it is a dependency of the boundary or the logits."""
        return [cache.state for cache in self.own(caches) if not cache.empty()]

    def embed(self, tokens: mx.array, caches: list[Any]) -> list[mx.array]:
        """Token ids [B, L] through the embedding and the own layers; returns the boundary arrays [B, L, ...]."""
        if not self._embeds or not self._probe.boundaries:
            raise StageFailed("This stage does not own the embedding.")
        boundary = self._forward(tokens, caches, None)
        for phantom in {id(c): c for c in caches if isinstance(c, Phantom)}.values():
            phantom.offset = phantom.offset + tokens.shape[1]
        return boundary

    def run(self, boundary: list[mx.array], caches: list[Any], position: int | mx.array) -> list[mx.array]:
        """Boundary arrays [B, L, ...] through the own layers. `position`: tokens already in the caches, or per row.

        Raises StageFailed for arrays that the layer before `start` cannot have returned.
        """
        if self.start == 0:
            raise StageFailed("This stage begins with the embedding; it takes token ids.")
        value = self._probe.boundaries[self.start - 1].unpack(boundary)
        move_phantoms(caches, position)
        return self._forward(_blank_tokens(boundary), caches, value)

    def output(self, boundary: list[mx.array], caches: list[Any], position: int | mx.array) -> mx.array:
        """Norm and head on the last position of what left the last layer, [B, L, ...] each: logits [B, V].

        The caches are only looked at. Raises StageFailed for arrays that the last layer cannot have returned.
        """
        if not self._outputs or not self._probe.boundaries:
            raise StageFailed("This stage does not own the output head.")
        last = [array[:, -1:] for array in boundary]
        self._pass.own, self._pass.last = range(0), None
        self._pass.value = self._probe.boundaries[-1].unpack(last)
        move_phantoms(caches, position)
        return self._logits(_blank_tokens(last), caches)

    def whole(self, tokens: mx.array, caches: list[Any]) -> mx.array:
        """Token ids [B, L] through the whole model: logits [B, V] of the last position."""
        if not self._whole:
            raise StageFailed("This stage does not own the whole model.")
        if self.layers in self._probe.cuts:
            # logits of every position of a prefill chunk would weigh more than some models
            return self.output(self.embed(tokens, caches), caches, 0)
        self._pass.own, self._pass.last = range(self.layers), None
        return self._logits(tokens, caches)

    def _logits(self, tokens: mx.array, caches: list[Any]) -> mx.array:
        logits: mx.array = self._model(tokens, cache=caches)
        self._pass.value = None
        return logits[:, -1]

    def _forward(self, tokens: mx.array, caches: list[Any], value: Any) -> list[mx.array]:
        self._pass.own, self._pass.last = range(self.start, self.stop), self.stop - 1
        self._pass.value = value
        try:
            self._model(tokens, cache=caches)
        except _StageDone as done:
            return self._probe.boundaries[self.stop - 1].pack(done.value)
        finally:
            self._pass.value = None
        raise StageFailed(f"The model ended before layer {self.stop - 1} ran.")


def legal_cuts(probe: Probe) -> frozenset[int]:
    """Positions at which a ring may cut the model; empty if it must stay in one process."""
    return frozenset() if probe.needs_tokens else probe.cuts - {probe.layers}


def check_cuts(probe: Probe, start: int, stop: int, *, embed: bool, output: bool) -> None:
    """Raises IllegalCut or UnsupportedModel unless [start, stop) with embedding and head can be a stage."""
    if not 0 <= start < stop <= probe.layers:
        raise IllegalCut(f"Layers [{start}, {stop}) are no part of a model of {probe.layers} layers.")
    if embed != (start == 0):
        raise IllegalCut("The stage with layer 0, and no other, owns the embedding.")
    edges = {start, stop} - {0, probe.layers}
    apart = (stop == probe.layers) != output
    if not edges and not apart:
        return
    if probe.needs_tokens:
        raise UnsupportedModel(
            "Every layer of this model reads the token ids, so it cannot be split over several Macs yet.",
            "Load it on one Mac, or choose another model.",
        )
    for cut in sorted(edges | ({probe.layers} if apart else set())):
        if cut not in probe.cuts:
            legal = ", ".join(str(c) for c in sorted(legal_cuts(probe)))
            raise IllegalCut(
                f"This model cannot be cut before layer {cut}, because layers on both sides share state.",
                f"It can be cut before layers {legal}." if legal else "Load it on one Mac.",
            )


def _make_slot(layer: nn.Module, index: int, now: _Pass) -> None:
    cls = type(layer)

    def call(this: Any, *args: Any, **kwargs: Any) -> Any:
        value = cls.__call__(this, *args, **kwargs) if index in now.own else now.value
        if index == now.last:
            raise _StageDone(value)
        if index in now.own and (index - now.own.start) % 2 == 0:
            mx.async_eval(value)  # MLX computes these layers while Python builds the graph of the next ones
        return value

    swap_class(layer, __call__=call)


def _blank_tokens(boundary: list[mx.array]) -> mx.array:
    """Token ids of the right shape; only the shape is used."""
    return mx.zeros(boundary[0].shape[:2], mx.int32)
