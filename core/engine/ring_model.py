"""A cluster as an mlx-lm model: its one cache is a handle, and what mlx-lm does to that becomes compositions.

mlx-lm's own generators, batches, prompt caches and evaluations run over it as they are.
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
    """All stages, seen from the head.

    `trim_limit`: caches can be trimmed while they hold fewer tokens; None: always. `vocab_size`: token ids are below.
    """

    trim_limit: int | None
    vocab_size: int

    def compose(self, ops: Sequence[Op]) -> None:
        """Every stage does `ops`, in their order, before the next forward."""

    def forward(self, handle: int, tokens: mx.array) -> mx.array:
        """Token ids [B, L] through all layers: logits [B, L, V], not yet evaluated."""

    def own_bytes(self, handle: int) -> int:
        """Bytes that the handle's caches take on this Mac."""


class RingModel:
    """What mlx-lm calls a model. It numbers its handles from 0, so it has the stages to itself.

    `layers`: one entry, as `make_cache` gives one cache; mlx-lm cuts lists of caches at their number.
    """

    def __init__(self, stages: Forward) -> None:
        self.stages = stages
        self.layers = [stages]
        self._handles = count()
        self._dropped: deque[int] = deque()

    def __call__(self, tokens: mx.array, cache: Sequence[RingCache] | None = None) -> mx.array:
        """Token ids [B, L] behind those that `cache` holds: logits [B, L, V]. Without a cache nothing is kept.

        Raises UsageError for ids that the model does not have, or another number of rows than the cache has.
        """
        batch, length = tokens.shape
        if mx.any((tokens < 0) | (tokens >= self.stages.vocab_size)).item():
            raise UsageError(f"The model knows no token ids but those below {self.stages.vocab_size}.")
        held = cache[0] if cache else self._new(batch)
        if batch != len(held.rows.tokens):
            raise UsageError(f"{batch} rows of tokens came for a cache of {len(held.rows.tokens)}.")
        self.compose()
        logits = self.stages.forward(held.handle, tokens)
        held.rows = held.rows.fed(length)
        return logits

    def make_cache(self) -> list[RingCache]:
        """The cache of a new row."""
        return [self._new(1)]

    def compose(self, *ops: Op) -> None:
        """Do `ops` on every stage, after dropping handles that became garbage."""
        drops = [Drop(self._dropped.popleft()) for _ in range(len(self._dropped))]
        if drops or ops:
            self.stages.compose([*drops, *ops])

    def next_handle(self) -> int:
        """A number that names nothing yet."""
        return next(self._handles)

    def hold(self, handle: int, rows: HandleShape) -> RingCache:
        """`handle` for mlx-lm, which forgets it as any other object: then it is dropped with the next composition."""
        cache = RingCache(self, handle, rows)
        # garbage is found at any time, even amid a composition
        weakref.finalize(cache, self._dropped.append, handle).atexit = False
        return cache

    def _new(self, batch: int) -> RingCache:
        ops = [New(self.next_handle()) for _ in range(batch)]
        self.compose(*ops)
        rows = [self.hold(op.handle, HandleShape()) for op in ops]
        return rows[0] if batch == 1 else rows[0].merge(rows)


class RingCache:
    """A handle that behaves as a cache of mlx-lm, plain or batched. `rows` answers what mlx-lm asks; no stage is asked.

    mlx-lm goes on using what it merged or extended with, so it is a copy that is used up; copies share their memory.
    """

    def __init__(self, model: RingModel, handle: int, rows: HandleShape) -> None:
        self._model = model
        self.handle = handle
        self.rows = rows

    def merge(self, caches: Sequence[RingCache]) -> RingCache:
        """A batch of plain rows; mlx-lm calls it on any one of them."""
        copies = [Copy(self._model.next_handle(), cache.handle) for cache in caches]
        op = Merge(self._model.next_handle(), tuple(copy.into for copy in copies))
        rows = after(op, [cache.rows for cache in caches])
        self._model.compose(*copies, op)
        return self._model.hold(op.into, rows)

    def extend(self, other: RingCache) -> None:
        """Append the rows of another batch."""
        copy = Copy(self._model.next_handle(), other.handle)
        op = Extend(self.handle, copy.into)
        rows = after(op, [self.rows, other.rows])
        self._model.compose(copy, op)
        self.rows = rows

    def filter(self, batch_indices: Sequence[int] | mx.array) -> None:
        """Only these rows of the batch stay."""
        self._change(Keep(self.handle, _numbers(batch_indices)))

    def extract(self, idx: int) -> RingCache:
        """A row of the batch, as a plain one."""
        op = Extract(self._model.next_handle(), self.handle, idx)
        rows = after(op, [self.rows])
        self._model.compose(op)
        return self._model.hold(op.into, rows)

    def prepare(
        self,
        *,
        left_padding: Sequence[int] | None = None,
        lengths: Sequence[int] | None = None,
        right_padding: Sequence[int] | None = None,
    ) -> None:
        """The next tokens of the batch are padded."""
        padding = [None if each is None else _numbers(each) for each in (left_padding, lengths, right_padding)]
        self._change(PrepareRows(self.handle, *padding))

    def finalize(self) -> None:
        """Padding on the right goes to the left."""
        self._change(Finalise(self.handle))

    def is_trimmable(self) -> bool:
        """Whether the caches of every stage can be trimmed now."""
        return self.rows.is_trimmable(self._model.stages.trim_limit)

    def trim(self, n: int) -> int:
        """Take the last `n` tokens off, or as many as there are; returns how many."""
        n = min(n, self.rows.position)
        if n:
            self._change(Trim(self.handle, n))
        return n

    @property
    def state(self) -> list[mx.array]:
        """Nothing that mlx-lm could evaluate: every stage has done it."""
        return []

    @property
    def nbytes(self) -> int:
        """Bytes on this Mac."""
        return self._model.stages.own_bytes(self.handle)

    @property
    def offset(self) -> int:
        """Tokens of the longest row."""
        return self.rows.position

    def size(self) -> int:
        """Positions that the caches span."""
        return self.rows.width

    def empty(self) -> bool:
        """Whether no token was given yet."""
        return self.rows.width == 0

    def __deepcopy__(self, memo: dict[int, Any]) -> RingCache:
        op = Copy(self._model.next_handle(), self.handle)
        self._model.compose(op)
        return self._model.hold(op.into, self.rows)

    def _change(self, op: Op) -> None:
        rows = after(op, [self.rows])
        self._model.compose(op)
        self.rows = rows


def _numbers(values: Sequence[int] | mx.array) -> tuple[int, ...]:
    return tuple(int(value) for value in values)
