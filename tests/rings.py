"""What mlx_lm computes in one process, and a ring of stages in the same process that has to equal it.

What crosses a cut goes through plain bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import make_prompt_cache

from core.models.slots import Slice

_WORDS = {mx.float32: np.uint32, mx.bfloat16: np.uint16, mx.float16: np.uint16}


def wire(arrays: list[mx.array]) -> list[mx.array]:
    """Through plain bytes, as between two machines."""
    out = []
    for array in arrays:
        raw: Any = mx.contiguous(array).view(mx.uint8)
        copied = mx.array(np.frombuffer(bytes(memoryview(raw)), _WORDS[array.dtype])).view(array.dtype)
        out.append(copied.reshape(array.shape))
    return out


class Reference:
    """Logits of every chunk and step, and the greedy tokens behind the last chunk, of the whole model in mlx_lm."""

    def __init__(self, model: Any, chunks: tuple[int, ...], steps: int) -> None:
        caches = make_prompt_cache(model)
        rng = np.random.default_rng(7)
        self.inputs = [rng.integers(4, 200, (1, n)).tolist() for n in chunks]
        self.logits: list[Any] = []
        self.tokens: list[int] = []
        for step in range(len(chunks) + steps):
            logits = model(mx.array(self.inputs[step]), cache=caches)[:, -1]
            mx.eval(logits, [c.state for c in caches])
            self.logits.append(np.array(logits.astype(mx.float32)))
            if step + 1 >= len(chunks):
                self.tokens.append(int(self.logits[-1].argmax()))
                self.inputs.append([[self.tokens[-1]]])
        assert not np.isnan(self.logits).any()


@dataclass
class Rows:
    """Rows that run together: each stage's caches, and the tokens seen so far, a number or one per row."""

    caches: list[list[Any]]
    seen: int | mx.array


class Ring:
    """`head`: the number of the stage that owns norm and output head. A ring of one stage is the whole model."""

    def __init__(self, stages: Sequence[Slice], head: int) -> None:
        self.stages = stages
        self.head = head

    def begin(self) -> Rows:
        """One new row."""
        return Rows([stage.new_caches() for stage in self.stages], 0)

    def step(self, rows: Rows, tokens: list[list[int]]) -> Any:
        """Token ids [B, L] round the ring; logits [B, V] of the last position as float32."""
        array = mx.array(tokens)
        logits = self._round(rows, array) if len(self.stages) > 1 else self.stages[0].whole(array, rows.caches[0])
        mx.eval(logits, self.stages[self.head].states(rows.caches[self.head]))
        rows.seen = rows.seen + array.shape[1]
        return np.array(logits.astype(mx.float32))

    def _round(self, rows: Rows, array: mx.array) -> mx.array:
        boundary: list[mx.array] = []
        for stage, caches in zip(self.stages, rows.caches, strict=True):
            boundary = stage.run(boundary, caches, rows.seen) if boundary else stage.embed(array, caches, rows.seen)
            mx.eval(boundary, stage.states(caches))
            assert sum(a.nbytes for a in boundary) == stage.boundary_bytes_per_token * array.size
            boundary = wire(boundary)
        return self.stages[self.head].output(boundary, rows.caches[self.head], rows.seen + array.shape[1])

    def merge(self, rows: Sequence[Rows]) -> Rows:
        """Rows that ran alone, together from now on."""
        caches = [stage.merge([row.caches[i] for row in rows]) for i, stage in enumerate(self.stages)]
        return Rows(caches, mx.array([row.seen for row in rows]))

    def extend(self, rows: Rows, more: Rows) -> Rows:
        """Merged rows with other merged rows behind them."""
        pairs = zip(self.stages, rows.caches, more.caches, strict=True)
        return Rows([stage.extend(a, b) for stage, a, b in pairs], mx.concatenate([_each(rows), _each(more)]))

    def keep(self, rows: Rows, chosen: list[int]) -> Rows:
        """These of merged rows."""
        caches = [stage.keep(own, chosen) for stage, own in zip(self.stages, rows.caches, strict=True)]
        return Rows(caches, _each(rows)[mx.array(chosen)])


def _each(rows: Rows) -> mx.array:
    assert isinstance(rows.seen, mx.array)
    return rows.seen


def check(ring: Ring, reference: Reference, *, within: float | None) -> None:
    """The same inputs give the same greedy tokens, and logits `within` the reference's; None: tokens alone count."""
    rows = ring.begin()
    tokens = []
    for inputs, expected in zip(reference.inputs, reference.logits, strict=False):
        logits = ring.step(rows, inputs)
        if within is not None:
            np.testing.assert_allclose(logits, expected, rtol=0, atol=within)
        tokens.append(int(logits.argmax()))
    assert tokens[-len(reference.tokens) :] == reference.tokens
