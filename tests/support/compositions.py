"""Random compositions that mlx-lm's caches allow, and their result in mlx-lm itself."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from itertools import count
from random import Random
from typing import Any

import mlx.core as mx

from core.engine.handle_shapes import HandleShape, after, sources, target, used_up
from core.engine.ring_work import Copy, Drop, Extend, Extract, Finalise, Keep, Merge, New, Op, PrepareRows, Trim


class Handles:
    """Rows and mlx-lm caches of every handle; subclasses feed them. `new_caches` makes those of a new row."""

    def __init__(self, limit: int | None, new_caches: Callable[[], list[Any]]) -> None:
        self.rows: dict[int, HandleShape] = {}
        self.caches: dict[int, list[Any]] = {}
        self.limit = limit
        self.new_caches = new_caches
        self.done: set[type[Op]] = set()
        self._numbers = count()

    def forward(self, handle: int, length: int) -> None:
        """Feed `length` positions to every row of a handle."""
        raise NotImplementedError

    def do(self, op: Op) -> None:
        """Run a composition of one operation."""
        rows = after(op, [self.rows[handle] for handle in sources(op)])
        caches = self._composed(op, [self.caches[handle] for handle in sources(op)])
        for handle in (*used_up(op), target(op)):
            self.rows.pop(handle, None)
            self.caches.pop(handle, None)
        if not isinstance(op, Drop):
            self.rows[target(op)], self.caches[target(op)] = rows, caches
        self.done.add(type(op))

    def feed(self, handle: int, length: int) -> None:
        """Feed `length` positions to a handle."""
        self.forward(handle, length)
        self.rows[handle] = self.rows[handle].fed(length)

    def play(self, rng: Random) -> None:
        """Run a random composition, forward or ragged prompt that mlx-lm allows in this state."""
        choices: list[Op | tuple[int, int]] = [New(next(self._numbers))]
        for handle, rows in self.rows.items():
            choices += [(handle, rng.randint(1, 6)), *self._changes(handle, rows, rng)]
        chosen = rng.choice(choices)
        if isinstance(chosen, tuple):
            self.feed(*chosen)
            return
        self.do(chosen)
        if isinstance(chosen, PrepareRows):
            # a padded window takes no single token
            longest = max(chosen.lengths or ())
            for length in [longest] if longest < 4 else [2, longest - 2]:
                self.feed(chosen.handle, length)
            self.do(Finalise(chosen.handle))

    def _changes(self, handle: int, rows: HandleShape, rng: Random) -> list[Op]:
        size = len(rows.tokens)
        choices: list[Op] = [Drop(handle), Copy(next(self._numbers), handle)]
        if rows.is_trimmable(self.limit) and min(rows.tokens) > 2:
            choices.append(Trim(handle, rng.randint(0, 2)))
        if not rows.is_batch:
            others = [other for other, own in self.rows.items() if not own.is_batch and other != handle]
            chosen = [handle, *rng.sample(others, min(len(others), rng.randint(0, 2)))]
            return [*choices, Merge(next(self._numbers), tuple(chosen))]
        choices.append(Keep(handle, tuple(rng.sample(range(size), rng.randint(1, size)))))
        lengths = tuple(rng.randint(1, 9) for _ in range(size))
        padding = tuple(max(lengths) - length for length in lengths)
        choices.append(PrepareRows(handle, lengths=lengths, right_padding=padding))
        choices += [Extend(handle, more) for more, own in self.rows.items() if own.is_batch and more != handle][:1]
        if rows.width:
            choices.append(Extract(next(self._numbers), handle, rng.randrange(size)))
        return choices

    def _composed(self, op: Op, given: list[list[Any]]) -> list[Any]:
        """Run the operation in mlx-lm; returns the list of caches of the target."""
        match op:
            case New():
                return self.new_caches()
            case Merge():
                return [type(parts[0]).merge(list(parts)) for parts in zip(*given, strict=True)]
            case Copy():
                return deepcopy(given[0])
            case Extract():
                return [cache.extract(op.row) for cache in given[0]]
            case Drop():
                return []
        for cache, *more in zip(*given, strict=True):
            match op:
                case Extend():
                    cache.extend(*more)
                case Keep():
                    cache.filter(mx.array(op.rows))
                case Trim():
                    assert cache.trim(op.count) == op.count
                case PrepareRows():
                    cache.prepare(lengths=op.lengths, right_padding=op.right_padding)
                case Finalise():
                    cache.finalize()
        return given[0]
