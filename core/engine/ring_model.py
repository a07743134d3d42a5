"""A cluster as an mlx-lm model: its only cache is a handle, and what mlx-lm does to it becomes compositions.

mlx-lm's generators, batches, prompt caches and evaluations run over it unchanged.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence
from itertools import count
from typing import Any, Protocol

import mlx.core as mx

from core.engine.handle_shapes import HandleShape, after
from core.engine.ring_work import Copy, Drop, Extend, Extract, Finalise, Keep, Merge, New, Op, PrepareRows, Trim
from core.errors import UsageError


class Forward(Protocol):
    """All stages, as the head uses them."""

    trim_limit: int | None
    vocab_size: int

    def compose(self, ops: Sequence[Op]) -> None:
        """Apply `ops` in order on every stage, before the next forward."""

    def forward(self, handle: int, tokens: mx.array) -> mx.array:
        """Logits [B, L, V] of token ids [B, L], not yet evaluated."""

    def own_bytes(self, handle: int) -> int:
        """Bytes of the handle's caches on this Mac."""


class RingModel:
    """The model object for mlx-lm. It numbers handles from 0, so no other user may share the stages."""

    def __init__(self, stages: Forward) -> None:
        self.stages = stages
        self.layers = [stages]
        self._handles = count()
        self._dropped: deque[int] = deque()

    def __call__(self, tokens: mx.array, cache: Sequence[RingCache] | None = None) -> mx.array:
        """Logits [B, L, V] of token ids [B, L] that follow those in `cache`. Without a cache nothing is kept. Raises
        UsageError for unknown token ids, or if the number of rows differs from the cache's.
        """
        batch, length = tokens.shape
        if mx.any((tokens < 0) | (tokens >= self.stages.vocab_size)).item():
            raise UsageError(f"Token ids must be below {self.stages.vocab_size}.")
        held = cache[0] if cache else self._new(batch)
        if batch != len(held.rows.tokens):
            raise UsageError(f"There are {batch} rows of tokens, and the cache has {len(held.rows.tokens)}.")
        self.compose()
        logits = self.stages.forward(held.handle, tokens)
        held.rows = held.rows.fed(length)
        return logits

    def make_cache(self) -> list[RingCache]:
        return [self._new(1)]

    def compose(self, *ops: Op) -> None:
        """Apply `ops` on every stage, after dropping handles that became garbage."""
        drops = [Drop(self._dropped.popleft()) for _ in range(len(self._dropped))]
        if drops or ops:
            self.stages.compose([*drops, *ops])

    def applied(self, op: Op, held: Sequence[RingCache], *before: Op) -> HandleShape:
        """Apply `op` after other ops; returns the rows of its target."""
        rows = after(op, [cache.rows for cache in held])
        self.compose(*before, op)
        return rows

    def next_handle(self) -> int:
        return next(self._handles)

    def hold(self, handle: int, rows: HandleShape) -> RingCache:
        """A cache object for `handle`; when mlx-lm forgets it, the handle is dropped with the next composition."""
        cache = RingCache(self, handle, rows)
        # the finaliser may run at any time, even during a composition
        weakref.finalize(cache, self._dropped.append, handle).atexit = False
        return cache

    def _new(self, batch: int) -> RingCache:
        ops = [New(self.next_handle()) for _ in range(batch)]
        self.compose(*ops)
        rows = [self.hold(op.handle, HandleShape()) for op in ops]
        return rows[0] if batch == 1 else rows[0].merge(rows)


class RingCache:
    """A handle that behaves like a cache of mlx-lm, plain or batched; `rows` answers its questions without a stage.
    mlx-lm reuses what it merged or extended with, so a copy is used up instead; copies share their memory.
    """

    def __init__(self, model: RingModel, handle: int, rows: HandleShape) -> None:
        self._model = model
        self.handle = handle
        self.rows = rows

    def merge(self, caches: Sequence[RingCache]) -> RingCache:
        """A batch of plain rows; mlx-lm calls it on any of them."""
        copies = [Copy(self._model.next_handle(), cache.handle) for cache in caches]
        op = Merge(self._model.next_handle(), tuple(copy.into for copy in copies))
        return self._model.hold(op.into, self._model.applied(op, caches, *copies))

    def extend(self, other: RingCache) -> None:
        copy = Copy(self._model.next_handle(), other.handle)
        self.rows = self._model.applied(Extend(self.handle, copy.into), [self, other], copy)

    def filter(self, batch_indices: Sequence[int] | mx.array) -> None:
        self._change(Keep(self.handle, _numbers(batch_indices)))

    def extract(self, idx: int) -> RingCache:
        op = Extract(self._model.next_handle(), self.handle, idx)
        return self._model.hold(op.into, self._model.applied(op, [self]))

    def prepare(
        self,
        *,
        left_padding: Sequence[int] | None = None,
        lengths: Sequence[int] | None = None,
        right_padding: Sequence[int] | None = None,
    ) -> None:
        padding = [None if each is None else _numbers(each) for each in (left_padding, lengths, right_padding)]
        self._change(PrepareRows(self.handle, *padding))

    def finalize(self) -> None:
        self._change(Finalise(self.handle))

    def is_trimmable(self) -> bool:
        return self.rows.is_trimmable(self._model.stages.trim_limit)

    def trim(self, n: int) -> int:
        """Trim up to `n` tokens; returns how many."""
        n = min(n, self.rows.position)
        if n:
            self._change(Trim(self.handle, n))
        return n

    @property
    def state(self) -> list[mx.array]:
        """Nothing to evaluate: every stage has done it."""
        return []

    @property
    def nbytes(self) -> int:
        return self._model.stages.own_bytes(self.handle)

    @property
    def offset(self) -> int:
        return self.rows.position

    def size(self) -> int:
        return self.rows.width

    def empty(self) -> bool:
        return self.rows.width == 0

    def __deepcopy__(self, memo: dict[int, Any]) -> RingCache:
        op = Copy(self._model.next_handle(), self.handle)
        return self._model.hold(op.into, self._model.applied(op, [self]))

    def _change(self, op: Op) -> None:
        self.rows = self._model.applied(op, [self])


def _numbers(values: Sequence[int] | mx.array) -> tuple[int, ...]:
    return tuple(int(value) for value in values)
