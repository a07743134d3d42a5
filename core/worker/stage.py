"""The layers of this worker with the caches of the request that is running."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx

from core.errors import ProtocolError, StageFailed
from core.models.slots import Slice
from core.worker.telemetry import StageMeter

CLEAR_CACHE_EVERY = 256


class Stage:
    """Runs one request at a time; every method returns evaluated arrays.

    `position` counts the tokens that are already in the caches, which are kept in `kv_bits` bits if that is given.
    """

    def __init__(self, layers: Slice, meter: StageMeter, kv_bits: int | None = None) -> None:
        self.layers = layers
        self.meter = meter
        self.position = 0
        self._kv_bits = kv_bits
        self._caches: list[Any] | None = None
        self._calls = 0

    def begin(self) -> None:
        """Fresh caches for a new request: nothing of an earlier one may show through."""
        self._caches = self.layers.new_caches()
        self.position = 0

    def end(self) -> None:
        """Forget the request."""
        self._caches = None
        self.position = 0
        mx.clear_cache()

    def embed(self, tokens: list[int]) -> list[mx.array]:
        """Token ids through the embedding and this stage's layers; the boundary arrays [1, tokens, hidden]."""
        with self._computing():
            out = self.layers.embed(mx.array([tokens]), self._running(), self.position)
            return self._advance(out, len(tokens))

    def run(self, boundary: list[mx.array], position: int, rows: int) -> list[mx.array]:
        """The boundary of the previous stage through this stage's layers.

        Raises ProtocolError if `position` is not the next one: a step must not run twice.
        """
        if sum(a.nbytes for a in boundary) != rows * self.layers.incoming_bytes_per_token:
            raise ProtocolError(f"A frame of {rows} rows carried {[a.shape for a in boundary]}.")
        if position != self.position:
            raise ProtocolError(f"A step for position {position} came where {self.position} was next.")
        with self._computing():
            out = self.layers.run(boundary, self._running(), position)
            return self._advance(out, rows)

    def logits(self, boundary: list[mx.array]) -> mx.array:
        """Norm and output head on what left the last layer; logits [1, vocabulary] of the last position."""
        with self._computing():
            logits = self.layers.output(boundary, self._running(), self.position)
            mx.eval(logits)
        return logits

    def whole(self, tokens: list[int]) -> mx.array:
        """Token ids through the whole model, which this stage owns; logits [1, vocabulary] of the last position."""
        with self._computing():
            (logits,) = self._advance([self.layers.whole(mx.array([tokens]), self._running())], len(tokens))
            return logits

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Time what MLX does; its errors (out of memory, a kernel that this device lacks) become StageFailed."""
        with self.meter.compute:
            try:
                yield
            except (RuntimeError, ValueError) as error:
                raise StageFailed(f"MLX could not compute this stage: {error}") from error

    def _running(self) -> list[Any]:
        if self._caches is None:
            raise StageFailed("A step came while no request was running.")
        return self._caches

    def _advance(self, out: list[mx.array], rows: int) -> list[mx.array]:
        if self._kv_bits:
            self._caches = self.layers.quantise(self._running(), self._kv_bits)
        mx.eval(out, self.layers.states(self._running()))
        self.position += rows
        self._calls += 1
        if rows > 1 or self._calls % CLEAR_CACHE_EVERY == 0:
            mx.clear_cache()
        return out
