"""Calls of an mlx-lm model as forwards round the ring, one at a time, for `RingModel`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import mlx.core as mx

from core.engine.ring_work import Op
from core.errors import error_from
from core.settings import CHUNK_BYTES, MAX_ROWS
from core.worker.pipeline import Pipeline, StepAnswer

LOGIT_BYTES: Final = 4


class RingForward:
    """`core.engine.ring_model.Forward` over the head's pipeline. Methods raise LinkError when the ring breaks,
    StageFailed when a stage can't compute. Not for use while requests run.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        layers = pipeline.stage.layers
        self.trim_limit, self.vocab_size = layers.caches.trim_limit, layers.vocab_size
        logits = 0 if pipeline.chooses else LOGIT_BYTES * layers.vocab_size
        widest = max(layers.boundary_bytes_per_token, layers.incoming_bytes_per_token, logits, 1)
        self._most_positions = min(MAX_ROWS, CHUNK_BYTES // widest)

    def compose(self, ops: Sequence[Op]) -> None:
        self._pipeline.compose(ops)

    def forward(self, handle: int, tokens: mx.array) -> mx.array:
        """Logits [B, L, V] of token ids [B, L], unevaluated; computed in parts if too large for one frame."""
        length = max(1, self._most_positions // tokens.shape[0])
        parts = [self._round(handle, tokens[:, at : at + length]) for at in range(0, tokens.shape[1], length)]
        return mx.concatenate(parts, axis=1)

    def own_bytes(self, handle: int) -> int:
        return self._pipeline.stage.nbytes(handle)

    def _round(self, handle: int, tokens: mx.array) -> mx.array:
        self._pipeline.forward(handle, tokens, every=True)
        while (logits := self._take().logits) is None:
            pass  # result of a composition
        return logits

    def _take(self) -> StepAnswer:
        while (answer := self._pipeline.take()) is None:
            self._pipeline.wait(None)
        if answer.problem:
            raise error_from(answer.problem)
        return answer
