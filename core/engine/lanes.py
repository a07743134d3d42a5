"""Lanes of rows that decode together, as values: leave, join, gather and split.

Each function takes the lanes and returns the ops for every stage with the new lanes. A lane with a step in flight stays
as it is until the step is back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from core.engine.handle_shapes import sources, target
from core.engine.ring_work import Copy, Extend, Extract, Keep, Merge, Op


class Lane(NamedTuple):
    """Rows that step together under `handle`."""

    handle: int
    rows: tuple[str, ...]  # request ids, in the order in which the stages hold them
    batched: bool = False  # if not: one row, under the handle of its prompt
    flying: int = 0  # steps on the ring

    def size(self, gone: Collection[str]) -> int:
        return sum(row not in gone for row in self.rows) if gone else len(self.rows)


class LaneChange(NamedTuple):
    """The ops of a composition, and the lanes after it."""

    ops: list[Op]
    lanes: list[Lane]


class Left(NamedTuple):
    """The ops of a composition, the lanes after it, and the plain handles of rows that stay in memory."""

    ops: list[Op]
    lanes: list[Lane]
    apart: dict[str, int]


def leave(lanes: Iterable[Lane], gone: Collection[str], kept: Collection[str], handles: Iterator[int]) -> Left:
    """Remove the rows in `gone`; those also in `kept` stay in memory by themselves. A lane left empty comes back
    without rows: drop its handle, unless a kept row has it.
    """
    left = Left([], [], {})
    for lane in lanes:
        if gone and not lane.flying:
            lane = _without(lane, gone, kept, handles, left)
        left.lanes.append(lane)
    return left


def join(
    lanes: Sequence[Lane],
    ready: Iterable[Lane],
    gone: Collection[str],
    most: int,
    handles: Iterator[int],
    fit: Callable[[Sequence[Sequence[str]]], bool],
) -> LaneChange:
    """Each plain lane in `ready` becomes a lane of its own while there are fewer than `most`; else it joins the lane
    with the fewest rows with which the rows of all lanes `fit` in memory. If that lane has a step in flight, this row
    and the ones after it wait outside all lanes. A lane that takes a row is batched from then on.
    """
    change = LaneChange([], list(lanes))
    joining: dict[int, list[Lane]] = {}
    for row in ready:
        standing = [number for number, lane in enumerate(change.lanes) if lane.size(gone)]
        number = None if len(standing) < most else _lane_for(row, change.lanes, standing, gone, joining, fit)
        if number is None:
            change.lanes.append(row)
        elif change.lanes[number].flying:
            break
        else:
            joining.setdefault(number, []).append(row)
    for number, rows in joining.items():
        change.lanes[number] = _joined(change.lanes[number], rows, handles, change.ops)
    return change


def gather(shared: Sequence[Lane], alone: Sequence[Lane], handles: Iterator[int]) -> LaneChange:
    first, *others = (*shared, *alone)
    ops: list[Op] = []
    return LaneChange(ops, [_joined(first, others, handles, ops)])


def split(lanes: Sequence[Lane], gone: Collection[str], most: int, handles: Iterator[int]) -> LaneChange:
    """Halve the largest lane while there are fewer than `most`; stop where it has a step on the ring."""
    change = LaneChange([], list(lanes))
    while sum(lane.size(gone) > 0 for lane in change.lanes) < most:
        largest = max(change.lanes, key=lambda lane: lane.size(gone), default=None)
        if largest is None or largest.flying or largest.size(gone) < 2:
            break
        at = change.lanes.index(largest)
        change.lanes[at : at + 1] = _halves(largest, next(handles), change.ops)
    return change


def named(ops: Iterable[Op]) -> set[int]:
    """Every handle that `ops` make, change or use up."""
    return {handle for op in ops for handle in (target(op), *sources(op))}


def _without(lane: Lane, gone: Collection[str], kept: Collection[str], handles: Iterator[int], left: Left) -> Lane:
    for number, row in enumerate(lane.rows):
        if row in kept:
            left.apart[row] = next(handles) if lane.batched else lane.handle
            if lane.batched:
                left.ops.append(Extract(left.apart[row], lane.handle, number))
    staying = tuple(number for number, row in enumerate(lane.rows) if row not in gone)
    if 0 < len(staying) < len(lane.rows):
        left.ops.append(Keep(lane.handle, staying))
    return lane._replace(rows=tuple(lane.rows[number] for number in staying))


def _lane_for(
    row: Lane,
    lanes: Sequence[Lane],
    standing: Sequence[int],
    gone: Collection[str],
    joining: Mapping[int, Sequence[Lane]],
    fit: Callable[[Sequence[Sequence[str]]], bool],
) -> int | None:
    rows = [[*lane.rows, *(more.rows[0] for more in joining.get(n, ()))] for n, lane in enumerate(lanes)]
    sizes = {n: lanes[n].size(gone) + len(joining.get(n, ())) for n in standing}
    for n in sorted(standing, key=lambda n: (sizes[n], lanes[n].flying)):
        if fit([*rows[:n], [*rows[n], *row.rows], *rows[n + 1 :]]):
            return n
    return None


def _joined(lane: Lane, rows: Sequence[Lane], handles: Iterator[int], ops: list[Op]) -> Lane:
    batch, plain = next(handles), tuple(row.handle for row in rows)
    together = lane.rows + tuple(row.rows[0] for row in rows)
    if not lane.batched:
        ops.append(Merge(batch, (lane.handle, *plain)))
        return Lane(batch, together, batched=True)
    ops += [Merge(batch, plain), Extend(lane.handle, batch)]
    return lane._replace(rows=together)


def _halves(lane: Lane, handle: int, ops: list[Op]) -> tuple[Lane, Lane]:
    half, count = (len(lane.rows) + 1) // 2, len(lane.rows)
    ops += [Copy(handle, lane.handle), Keep(lane.handle, tuple(range(half))), Keep(handle, tuple(range(half, count)))]
    return lane._replace(rows=lane.rows[:half]), lane._replace(handle=handle, rows=lane.rows[half:])
