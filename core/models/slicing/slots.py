"""Runs any contiguous slice of any mlx-lm model without changing its code.

The family's own Model keeps its full-length layer list. Every layer becomes a slot: layers of the slice compute, all
others return the value received over the cut, and the last slot of the slice ends the forward. Without the embedding,
the code before the layers runs on zero token ids; MLX is lazy, so that result is never computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import make_prompt_cache

from core.errors import StageFailed
from core.models.slicing import cache_state
from core.models.slicing.boundary import Sides, leaves
from core.models.slicing.building import FAILURES, first_line
from core.models.slicing.caches import SliceCaches, absent_caches
from core.models.slicing.forward_tracer import swap_class
from core.models.slicing.probe import ModelProbe, check_cuts
from core.models.slicing.quirks import order_windows, verifies_drafts
from core.models.slicing.ranks import BY_LAYERS, Rank, computes_apart, join


class _StageDone(Exception):
    """Ends a forward after its last active slot; no error."""


class _Pass:
    """State of the slots during one forward: layers in `own` compute, the others return `value`; slot `end` ends it.

    `given`: side inputs received over the cut; `taken`: side inputs seen by the slots, on the stage with the tokens.
    `eager`: MLX computes layers while Python builds the graph of the next ones.
    """

    def __init__(self) -> None:
        self.own = range(0)
        self.eager = True
        self.end: int | None = None
        self.value: Any = None
        self.given: Sides | None = None
        self.taken: Sides = {}


class Slice:
    """Layers [start, stop) of a model. Everything is lazy and belongs to the thread that made it."""

    def __init__(
        self,
        model: nn.Module,
        probe: ModelProbe,
        start: int,
        stop: int,
        *,
        embed: bool,
        output: bool,
        rank: Rank | None = None,
    ) -> None:
        check_cuts(probe, start, stop, embed=embed, output=output)
        # number of layers of the whole model, and the range of this slice
        self.layers, self.start, self.stop = probe.layers, start, stop
        # token ids must be below it; mlx doesn't check
        self.vocab_size = probe.vocab
        # whether one forward of several tokens equals one forward per token
        self.verifies_drafts = verifies_drafts(model)
        # the slice's parameters by path
        self.weights: dict[str, mx.array] = {}
        self.weight_bytes = 0
        self.model, self._probe = model, probe
        self._embeds, self._outputs = embed, output
        # this process's rank, if the model was sharded
        self.rank = rank
        # all ranks compute the logits, as they do the layers, so every rank calls `whole`
        self.computes_at_once = rank is not None and not computes_apart(model, rank, probe)
        self._whole = embed and output and (start, stop) == (0, probe.layers)
        self._cuts = bool(probe.boundaries)
        # bytes per position and row of the boundary arrays that leave the slice
        self.boundary_bytes_per_token = probe.boundaries[stop - 1].bytes_per_token if self._cuts else 0
        # shape after [row, position] and dtype of each array that enters, or returns to the head of a ring:
        self.incoming = probe.boundaries[start - 1].kinds if self._cuts else []
        self.incoming_bytes_per_token = probe.boundaries[start - 1].bytes_per_token if self._cuts else 0
        own = {c for c in probe.cache_of[start:stop] if c is not None} | (probe.embed_caches if embed else set())
        own = own if self._cuts else set(range(len(make_prompt_cache(model))))
        self.caches = SliceCaches(lambda: make_prompt_cache(model), own, probe.embed_caches)
        self._pass = _Pass()
        self._looks_at_values = False  # whether the model reads values while a graph is built
        # whether the graph of a step can be built before its input arrives
        self.builds_ahead = rank is None
        # the first rank shares token ids that are still being computed, through the layers' reduce
        self.shares_tokens = False
        self._group: mx.distributed.Group | None = None
        if self._cuts:
            for index, layer in enumerate(list(model.layers)):
                _make_slot(layer, index, self._pass, probe.sides_of(index))

    def join(self, group: mx.distributed.Group, *, shares_tokens: bool) -> None:
        """Compute with the other ranks from now on. `shares_tokens`: a sum needs no Python, which may run ahead. Raises
        StageFailed if the parts of this model don't fit together, before anything is computed.
        """
        assert self.rank is not None
        join(self.model, self.rank, group)
        self._group, self.shares_tokens = group, shares_tokens
        try:
            self._dry_run(self.caches.new(), 1)
        except FAILURES as error:
            what = f"This model does not run in {self.rank.count} parts: {first_line(error)}."
            raise StageFailed(what, BY_LAYERS) from error

    def shared(self, tokens: mx.array) -> mx.array:
        """The first rank's token ids [B, L] on every rank, clipped, perhaps not computed yet; others pass zeros."""
        assert self.shares_tokens
        together = mx.distributed.all_sum(tokens.astype(mx.int32), group=self._group)
        return mx.clip(together, 0, self.vocab_size - 1)

    def outline(self, tokens: int, bits: int | None = None) -> list[Any]:
        """Cache list of a plain row of `tokens` tokens, at least one, in `bits` bits if given. Holds unevaluated zeros
        until every own cache is filled (`core.models.slicing.cache_state`).
        """
        caches = self.caches.new()
        self._dry_run(caches, cache_state.dry_length(self.caches.own(caches), tokens))
        if bits:
            caches = self.caches.quantise(caches, bits)
        return self.caches.build({i: cache_state.outline(caches[i], tokens) for i in self.caches.indices})

    def embed(self, tokens: mx.array, caches: list[Any], position: int | mx.array) -> list[mx.array]:
        """Run token ids [B, L] through the embedding and the own layers; returns the boundary arrays [B, L, ...].
        `position`: tokens already in the caches, or one number per row.
        """
        if not self._embeds or not self._cuts:
            raise StageFailed("This stage does not own the embedding.")
        last = max((s.last for s in self._probe.sides_behind(self.stop).values()), default=0)
        _move(caches, position)
        return self._forward(tokens, caches, None, max(self.stop - 1, last))

    def run(self, boundary: list[mx.array], caches: list[Any], position: int | mx.array) -> list[mx.array]:
        """Run boundary arrays [B, L, ...] through the own layers. `position`: tokens in the caches, or per row. Raises
        StageFailed for arrays that the layer before `start` cannot return.
        """
        if self.start == 0:
            raise StageFailed("This stage begins with the embedding; it takes token ids.")
        received = self._probe.boundaries[self.start - 1].unpack(boundary)
        _move(caches, position)
        return self._forward(_blank_tokens(boundary), caches, received, self.stop - 1)

    def build_next(
        self, caches: list[Any], position: int | mx.array, rows: int, tokens: mx.array | None = None
    ) -> tuple[list[mx.array], list[mx.array]] | None:
        """Build the graph of `embed` or `run` for one more position of each of `rows` rows, before the input arrives.

        Returns zeros for the input, whose memory the caller overwrites later, and the uncomputed result; `caches` are
        as after the step. None for a model that reads values during the forward. `tokens`: input of `embed`, [rows, 1],
        if it is computed in the same graph.
        """
        if self.start:
            blank = self._probe.boundaries[self.start - 1].blank(1, rows)
            return self._built(blank, lambda: self.run(blank, caches, position))
        given = mx.zeros((rows, 1), mx.int32) if tokens is None else tokens
        return self._built([given], lambda: self.embed(given, caches, position), is_blank=tokens is None)

    def build_next_output(
        self, caches: list[Any], position: int | mx.array, rows: int
    ) -> tuple[list[mx.array], list[mx.array]] | None:
        """Build the graph of `output` for one position of each of `rows` rows, as `build_next` does."""
        blank = self._probe.boundaries[-1].blank(1, rows)
        return self._built(blank, lambda: [self.output(blank, caches, position)])

    def _built(
        self, given: list[mx.array], forward: Callable[[], list[mx.array]], *, is_blank: bool = True
    ) -> tuple[list[mx.array], list[mx.array]] | None:
        if self._looks_at_values:
            return None
        with self._lazily():
            out = forward()
        self._looks_at_values = not all(map(_is_lazy, given))
        if is_blank:
            mx.eval(given)
        return None if self._looks_at_values else (given, out)

    def output(
        self, boundary: list[mx.array], caches: list[Any], position: int | mx.array, *, every: bool = False
    ) -> mx.array:
        """Norm and head on the last layer's arrays, [B, L, ...] each: logits [B, V] of the last position, or [B, L, V].
        Only reads the caches. Raises StageFailed for arrays that the last layer cannot return.
        """
        if not self._outputs or not self._cuts:
            raise StageFailed("This stage does not own the output head.")
        wanted = boundary if every else [array[:, -1:] for array in boundary]
        now = self._pass
        now.own, now.end, now.given = range(0), None, None
        now.value, _ = self._probe.boundaries[-1].unpack(wanted)
        _move(caches, position)
        logits = self._logits(_blank_tokens(wanted), self.caches.without_embedding(caches))
        return logits if every else logits[:, -1]

    def whole(self, tokens: mx.array, caches: list[Any], *, every: bool = False, ahead: bool = False) -> mx.array:
        """Run token ids [B, L] through the whole model: logits [B, V] of the last position, or [B, L, V] for `every`.

        `ahead`: build the whole graph before computing, which is faster while MLX has other work; ignored for ranks,
        which are faster layer by layer.
        """
        if not self._whole:
            raise StageFailed("This stage does not own the whole model.")
        if ahead and self.rank is None:
            with self._lazily():
                return self.whole(tokens, caches, every=every)
        if self.layers in self._probe.cuts and tokens.shape[1] > 1:
            # logits of every position of a prefill chunk would take more memory than some models
            return self.output(self.embed(tokens, caches, 0), caches, 0, every=every)
        self._pass.own, self._pass.end, self._pass.given = range(self.layers), None, None
        self._order_windows(caches, tokens)
        logits = self._logits(tokens, caches)
        return logits if every else logits[:, -1]

    def _dry_run(self, caches: list[Any], count: int) -> None:
        """Forward of `count` positions without computing, to set the shapes in `caches`."""
        with self._lazily():
            tokens = mx.zeros((1, count), mx.int32)
            if not self._cuts:
                self.model(tokens, cache=caches)
            elif self._embeds:
                self.embed(tokens, caches, 0)
            else:
                self.run(self._probe.boundaries[self.start - 1].blank(count), caches, 0)

    @contextmanager
    def _lazily(self) -> Iterator[None]:
        before, self._pass.eager = self._pass.eager, False
        try:
            yield
        finally:
            self._pass.eager = before

    def _order_windows(self, caches: list[Any], tokens: mx.array) -> None:
        if tokens.shape[1] > 1:
            order_windows(part for cache in self.caches.own(caches) for part in cache_state.parts(cache))

    def _logits(self, tokens: mx.array, caches: list[Any]) -> mx.array:
        try:
            logits: mx.array = self.model(tokens, cache=caches)
        finally:
            self._pass.value = None
        return logits

    def _forward(
        self, tokens: mx.array, caches: list[Any], received: tuple[Any, Sides] | None, end: int
    ) -> list[mx.array]:
        now = self._pass
        now.own, now.end, now.taken = range(self.start, self.stop), end, {}
        now.value, now.given = received or (None, None)
        self._order_windows(caches, tokens)
        try:
            self.model(tokens, cache=caches)
        except _StageDone:
            sides = now.taken if now.given is None else now.given
            return self._probe.boundaries[self.stop - 1].pack(now.value, sides)
        finally:
            now.value, now.given, now.taken = None, None, {}
        raise StageFailed(f"The model ended before layer {self.stop - 1} ran.")


def _make_slot(layer: nn.Module, index: int, now: _Pass, sides: dict[int | str, int]) -> None:
    """`sides`: position or name of an argument -> number of the side input that it is."""
    cls = type(layer)

    def call(this: Any, *args: Any, **kwargs: Any) -> Any:
        if now.given is None:
            now.taken.update({n: kwargs[key] if isinstance(key, str) else args[key] for key, n in sides.items()})
        if index in now.own:
            if now.given is not None:
                args = tuple(now.given[sides[i]] if i in sides else arg for i, arg in enumerate(args))
                kwargs |= {key: now.given[n] for key, n in sides.items() if isinstance(key, str)}
            now.value = cls.__call__(this, *args, **kwargs)
            if now.eager and (index - now.own.start) % 2 == 0:
                mx.async_eval(leaves(now.value))  # MLX computes these layers while Python builds the next ones' graph
        if index == now.end:
            raise _StageDone
        return now.value

    swap_class(layer, __call__=call)


def _move(caches: Sequence[Any], position: int | mx.array) -> None:
    """Tells stand-ins how many tokens their layers have seen: a number, or one per row."""
    for absent in absent_caches(caches):
        absent.offset = position


def _is_lazy(array: mx.array) -> bool:
    """Whether it was made by an operation and is still to be computed: MLX tells that of its graph only."""
    graph = StringIO()
    mx.export_to_dot(graph, array)
    return "shape=rectangle" in graph.getvalue()


def _blank_tokens(boundary: list[mx.array]) -> mx.array:
    """Token ids of the right shape; only the shape is used."""
    return mx.zeros(boundary[0].shape[:2], mx.int32)
