"""Sizes of the rows under each handle, computed from its compositions instead of asked of mlx-lm's caches.

Both ends of a link compute the same: a stage checks its input with them, the head answers mlx-lm's questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from core.engine.ring_work import Copy, Drop, Extend, Extract, Finalise, Keep, Merge, Op, PrepareRows, Restore, Trim
from core.errors import ProtocolError
from core.settings import MAX_ROWS


class HandleShape(NamedTuple):
    """The rows of a handle; by default a new one."""

    # of each row, as the `offset` of mlx-lm's BatchKVCache: with right padding until it is finalised, without left
    # padding
    tokens: tuple[int, ...] = (0,)
    width: int = 0  # positions that the caches span at most, with padding
    is_batch: bool = False
    right_padding: tuple[int, ...] = ()  # of each row, if some waits to be finalised

    @property
    def position(self) -> int:
        return max(0, *self.tokens)

    def is_trimmable(self, limit: int | None) -> bool:
        return limit is None or self.width < limit

    def fed(self, count: int) -> HandleShape:
        return self._replace(tokens=tuple(n + count for n in self.tokens), width=self.width + count)


class HandleShapes:
    """The shapes of all handles."""

    def __init__(self) -> None:
        self._held: dict[int, HandleShape] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __getitem__(self, handle: int) -> HandleShape:
        if handle not in self._held:
            raise ProtocolError(f"Handle {handle} holds no rows.")
        return self._held[handle]

    def compose(self, ops: Sequence[Op]) -> None:
        for op in ops:
            rows = None if isinstance(op, Drop) else after(op, [self[handle] for handle in sources(op)])
            for handle in (target(op), *used_up(op)):
                self._held.pop(handle, None)
            if rows is not None:
                self._held[target(op)] = rows

    def fed(self, handle: int, count: int) -> None:
        self._held[handle] = self[handle].fed(count)

    def clear(self) -> None:
        self._held.clear()


def target(op: Op) -> int:
    return op.into if isinstance(op, Merge | Extend | Copy | Extract) else op.handle


def sources(op: Op) -> tuple[int, ...]:
    """The handles that `op` reads."""
    match op:
        case Merge():
            return op.rows
        case Extend():
            return (op.into, op.more)
        case Copy() | Extract():
            return (op.of,)
        case Keep() | Trim() | PrepareRows() | Finalise():
            return (op.handle,)
        case _:
            return ()


def used_up(op: Op) -> tuple[int, ...]:
    """The sources that no longer exist after `op`, apart from its target."""
    return () if isinstance(op, Copy | Extract) else sources(op)


def after(op: Op, held: Sequence[HandleShape]) -> HandleShape:
    """The shape of the target of `op` from those of its sources. Raises ProtocolError if it can't be done."""
    match op:
        case Merge():
            return _merged(held)
        case Extend():
            return _extended(*held)
        case Keep():
            tokens = tuple(_tokens(held[0], row) for row in op.rows)
            _check(tokens, "A batch must keep at least one row.")
            _check_size(len(tokens))
            return held[0]._replace(tokens=tokens)
        case Extract():
            count = _tokens(held[0], op.row)
            return HandleShape((count,), count)
        case Copy():
            return held[0]
        case Trim():
            _check(0 <= op.count <= held[0].position, f"{op.count} tokens can't be trimmed off {held[0].position}.")
            return held[0].fed(-op.count)
        case PrepareRows():
            return _prepared(op, held[0])
        case Finalise():
            return _finalised(held[0])
        case Restore():
            return HandleShape((op.tokens,), op.tokens)
        case _:
            return HandleShape()


def _merged(rows: Sequence[HandleShape]) -> HandleShape:
    _check(rows and not any(row.is_batch for row in rows), "Only plain rows can be merged, and at least one.")
    _check_size(len(rows))
    tokens = tuple(row.tokens[0] for row in rows)
    return HandleShape(tokens, max(tokens), True)


def _extended(rows: HandleShape, more: HandleShape) -> HandleShape:
    for each in (rows, more):
        _check(each.is_batch and not each.right_padding, "Only batches without padding on the right can be extended.")
    _check_size(len(rows.tokens) + len(more.tokens))
    return HandleShape(rows.tokens + more.tokens, max(rows.width, more.width), True)


def _tokens(rows: HandleShape, row: int) -> int:
    _check(rows.is_batch and not rows.right_padding, "Only a batch without padding on the right can be taken apart.")
    _check(0 <= row < len(rows.tokens), f"There is no row {row} among {len(rows.tokens)}.")
    return rows.tokens[row]


def _prepared(op: PrepareRows, rows: HandleShape) -> HandleShape:
    given = [each for each in (op.left_padding, op.lengths, op.right_padding) if each is not None]
    _check(rows.is_batch and all(len(each) == len(rows.tokens) for each in given), "Padding is given for each row.")
    _check(op.left_padding is None or not rows.width, "Padding on the left comes before the first token.")
    tokens = _less(rows.tokens, op.left_padding) if op.left_padding else rows.tokens
    right = op.right_padding if any(op.right_padding or ()) else None
    return rows._replace(tokens=tokens, right_padding=right or rows.right_padding)


def _finalised(rows: HandleShape) -> HandleShape:
    _check(rows.is_batch, "Only a batch is padded.")
    tokens = _less(rows.tokens, rows.right_padding) if rows.right_padding else rows.tokens
    return rows._replace(tokens=tokens, right_padding=())


def _check_size(rows: int) -> None:
    _check(rows <= MAX_ROWS, f"A batch of {rows} rows is beyond the {MAX_ROWS} allowed.")


def _less(tokens: Sequence[int], padding: Sequence[int]) -> tuple[int, ...]:
    return tuple(n - pad for n, pad in zip(tokens, padding, strict=True))


def _check(holds: object, otherwise: str) -> None:
    if not holds:
        raise ProtocolError(otherwise)
