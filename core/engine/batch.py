"""The rows and lanes of the scheduler, as screens and commands show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from core.engine.lanes import Lane
from core.engine.requests import Request
from core.engine.running import Row
from core.events import BatchLane, BatchRow


def row_views(rows: Mapping[str, Row], waiting: Iterable[Request], lanes: Sequence[Lane]) -> tuple[BatchRow, ...]:
    """Running rows in the order of their admission, then waiting requests in the order of the queue."""
    numbers = {name: number for number, lane in enumerate(_ordered(lanes), 1) for name in lane.rows}
    running = (_running(row, numbers.get(name)) for name, row in rows.items())
    return (*running, *(_row(request) for request in waiting))


def lane_views(lanes: Sequence[Lane], gone: Mapping[str, Row]) -> tuple[BatchLane, ...]:
    """The lanes by number, without the rows in `gone`, which leave when their step is back."""
    return tuple(BatchLane(rows=lane.size(gone), in_flight=lane.flying > 0) for lane in _ordered(lanes))


def _ordered(lanes: Sequence[Lane]) -> list[Lane]:
    return sorted(lanes, key=lambda lane: lane.handle)


def _running(row: Row, lane: int | None) -> BatchRow:
    return BatchRow(
        request_id=row.request.request_id,
        state="writing" if row.is_in_lane else "reading",
        prompt_tokens=len(row.request.tokens),
        read=row.read,
        reused=row.reused,
        written=len(row.history) - len(row.request.tokens),
        max_tokens=row.request.max_tokens,
        lane=lane,
    )


def _row(request: Request) -> BatchRow:
    return BatchRow(
        request_id=request.request_id,
        prompt_tokens=len(request.tokens),
        written=len(request.written),
        max_tokens=request.max_tokens,
    )
