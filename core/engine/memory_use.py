"""Memory of the running rows, in tokens, and the rows that others may copy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from core.engine.lanes import Lane
from core.engine.prefix_cache import LEAST_REUSED, Lent, tokens_of
from core.engine.ring_work import Copy, Extract, Op
from core.engine.running import Row


def reserved_tokens(rows: Iterable[Row]) -> int:
    return sum(tokens_of(row.request) for row in rows)


def claimed_tokens(rows: Mapping[str, Row], lanes: Sequence[Lane], chunk: int, draft: int) -> int:
    """Tokens of memory that the rows take now, and with their next chunk or draft step. Rows that share a lane are
    padded to the longest.
    """

    def claim(row: Row) -> int:
        more = 1 + draft if row.is_ready else chunk
        return min(tokens_of(row.request), row.position + row.excess + more)

    together = {name for lane in lanes for name in lane.rows}
    alone = sum(claim(row) for name, row in rows.items() if name not in together)
    return alone + sum(len(lane.rows) * max(claim(rows[name]) for name in lane.rows) for lane in lanes)


def lent_rows(rows: Mapping[str, Row], lanes: Sequence[Lane]) -> list[Lent]:
    """Rows that can be copied now. A row with a step on the ring can't: its next content is unknown."""
    flying = {name for lane in lanes if lane.flying for name in lane.rows}
    still = [row for name, row in rows.items() if name not in flying and not row.is_lost]
    return [Lent(row.held, copied_by(row, lanes)) for row in still if row.position >= LEAST_REUSED]


def copied_by(row: Row, lanes: Sequence[Lane]) -> Callable[[int], Op]:
    name = row.request.request_id
    lane = next((lane for lane in lanes if name in lane.rows), None)
    if lane and lane.batched:
        return partial(Extract, of=lane.handle, row=lane.rows.index(name))
    return partial(Copy, of=lane.handle if lane else row.handle)
