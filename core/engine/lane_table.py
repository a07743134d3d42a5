"""Running and leaving rows, and the lanes in which the stages hold them.

Methods that change lanes return the ops that every stage applies. A lane with a step on the ring never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from core.engine.lanes import Lane, gather, join, leave, split
from core.engine.prefix_cache import LEAST_REUSED, Lent
from core.engine.ring_work import Copy, Extract, Op, Trim
from core.engine.running import Row


class HeldRow(NamedTuple):
    """Where the stages hold the row of a request after the work that is on the ring."""

    request_id: str
    handle: int
    row: int  # index in the handle
    tokens: int  # of its history; unconfirmed draft tokens may follow


class Removed(NamedTuple):
    """The result of taking ended rows out of their lanes."""

    ops: list[Op]
    empty: set[int]  # handles of lanes without rows: to be dropped
    apart: list[tuple[Row, int]]  # rows that stay in memory, each with a plain handle of its own
    frees_lost: bool  # memory of lost rows is to be given back


class LaneTable:
    """Up to `most_lanes` lanes decode at a time, and more where padding would take too much memory. If `batched`, rows
    share lanes, else each has its own. A row takes up to `step` tokens more with a step, and reserves `growth`.
    """

    def __init__(self, most_lanes: int, handles: Iterator[int], *, batched: bool, step: int, growth: int) -> None:
        self.most_lanes, self._handles, self._is_batched = most_lanes, handles, batched
        self._step, self._growth = step, growth
        self.rows: dict[str, Row] = {}  # running rows, by request id
        self.leaving: dict[str, Row] = {}  # ended, but still in their lanes and in memory
        self.lanes: list[Lane] = []  # decoding; the one whose last step is oldest comes first
        self.reading: list[Lane] = []  # at most one such lane: rows whose prefixes are read together

    @property
    def is_empty(self) -> bool:
        return not (self.rows or self.lanes)

    @property
    def all_flying(self) -> bool:
        return all(lane.flying for lane in self.lanes) and self.all_joined

    @property
    def all_joined(self) -> bool:
        return all(row.is_in_lane for row in self.rows.values())

    @property
    def held(self) -> tuple[Row, ...]:
        return (*self.rows.values(), *self.leaving.values())

    @property
    def reserved_tokens(self) -> int:
        """Memory of the rows with all of their prefixes and what they soon write."""
        return self._padded(self._rows_in_lanes, lambda row: row.reserved(self._growth), self.held)

    @property
    def most_tokens(self) -> int:
        """The most memory that the rows may come to take."""
        return max(self.reserved_tokens, sum(row.most_tokens for row in self.held))

    def claimed_tokens(self, chunk: int) -> int:
        """Memory of the rows after their next chunk or step, in tokens."""
        return self._padded(self._rows_in_lanes, lambda row: row.claimed(chunk, self._step), self.held)

    def fits_in(self, room: int) -> bool:
        """Whether all running rows can read their prefixes and make a step; one alone always can."""
        return self._fits(self._rows_in_lanes, self.rows.values(), room)

    @property
    def _rows_in_lanes(self) -> list[Sequence[str]]:
        return [lane.rows for lane in (*self.lanes, *self.reading)]

    def _fits(self, lanes: Iterable[Sequence[str]], rows: Collection[Row], room: int) -> bool:
        return len(rows) == 1 or self._padded(lanes, lambda row: row.reserved(self._step), rows) <= room

    @staticmethod
    def _padded(lanes: Iterable[Sequence[str]], need: Callable[[Row], int], rows: Iterable[Row]) -> int:
        """Memory of `rows`. Each takes as much as the longest one in its lane: a batch is padded."""
        needs = {row.request.request_id: need(row) for row in rows}
        together = [[needs.pop(name) for name in lane if name in needs] for lane in lanes]
        return sum(needs.values()) + sum(len(lane) * max(lane) for lane in together if lane)

    def lent(self) -> list[Lent]:
        """Rows that can be copied now. A row with a step on the ring can't: its next content is unknown."""
        flying = {name for lane in (*self.lanes, *self.reading) if lane.flying for name in lane.rows}
        still = [row for name, row in self.rows.items() if name not in flying and not row.is_lost]
        return [Lent(row.held, self.copied(row)) for row in still if row.position >= LEAST_REUSED]

    def copied(self, row: Row) -> Callable[[int], Op]:
        lane = self.lane_of(row.request.request_id)
        if lane.batched:
            return partial(Extract, of=lane.handle, row=lane.rows.index(row.request.request_id))
        return partial(Copy, of=lane.handle)

    def held_rows(self) -> list[HeldRow]:
        lanes = ((name, self.lane_of(name), row.position) for name, row in self.rows.items())
        return [HeldRow(name, lane.handle, lane.rows.index(name), tokens) for name, lane, tokens in lanes]

    def lane_of(self, name: str) -> Lane:
        """Where the stages hold a running row: alone, or in a lane with others."""
        alone = Lane(self.rows[name].handle, (name,))
        return next((lane for lane in (*self.reading, *self.lanes) if name in lane.rows), alone)

    def next_lane(self) -> Lane | None:
        return next((lane for lane in self.lanes if not self._is_under_way(lane)), None)

    def take_off(self, handle: int) -> Lane:
        at = next(at for at, lane in enumerate(self.lanes) if lane.handle == handle)
        lane = self.lanes.pop(at)
        self.lanes.append(lane._replace(flying=lane.flying + 1))
        return lane

    def land(self, handle: int) -> None:
        self.lanes = [lane._replace(flying=lane.flying - 1) if lane.handle == handle else lane for lane in self.lanes]

    def end(self, name: str) -> tuple[Row, bool]:
        """End a running row; also returns whether it stays in a lane until `remove_ended`."""
        row = self.rows.pop(name)
        is_held = row.is_in_lane or any(name in lane.rows for lane in self.reading)
        if is_held:
            self.leaving[name] = row
        return row, is_held

    def lose(self, handles: set[int]) -> list[str]:
        """Mark rows under `handles`, and all rows of their lanes, as lost; returns the running ones."""
        together = {row for lane in (*self.lanes, *self.reading) if lane.handle in handles for row in lane.rows}
        for name, row in (*self.rows.items(), *self.leaving.items()):
            row.is_lost = row.is_lost or name in together or row.handle in handles
        return [name for name, row in self.rows.items() if row.is_lost]

    def trim_wrong_drafts(self) -> list[Op]:
        """Take rejected draft tokens off rows whose lanes have no step on the ring that counts."""
        ops: list[Op] = []
        for lane in self.lanes:
            if lane.batched or self._is_under_way(lane):
                continue
            row = self.rows.get(lane.rows[0]) or self.leaving[lane.rows[0]]
            if not row.is_lost and (excess := row.trim()):
                ops.append(Trim(lane.handle, excess))
        return ops

    def remove_ended(self) -> Removed:
        """Take ended rows out of the lanes that have no step on the ring."""
        if not self.leaving:  # as after almost every step
            return Removed([], set(), [], frees_lost=False)
        kept = self._worth_keeping()
        decoding = leave(self.lanes, self.leaving, kept, self._handles)
        reading = leave(self.reading, self.leaving, kept, self._handles)
        handles = {**decoding.apart, **reading.apart}
        empty = {lane.handle for lane in (*decoding.lanes, *reading.lanes) if not lane.rows}
        self.lanes = [lane for lane in decoding.lanes if lane.rows]
        self.reading = [lane for lane in reading.lanes if lane.rows]
        staying = {name for lane in self.lanes for name in lane.rows}
        gone = {name: row for name, row in self.leaving.items() if name not in staying}
        self.leaving = {name: row for name, row in self.leaving.items() if name in staying}
        return Removed(
            ops=decoding.ops + reading.ops,
            empty=empty - set(handles.values()),
            apart=[(gone[name], handle) for name, handle in handles.items()],
            frees_lost=any(row.is_lost for row in gone.values()),
        )

    def part_reading(self) -> tuple[list[Op], set[int]]:
        """Take read rows out of the lane they share; also returns the handles of empty lanes, to be dropped."""
        read = {name for lane in self.reading for name in lane.rows if self.rows[name].is_ready}
        ops, lanes, apart = leave(self.reading, read, read, self._handles)
        self.reading = [lane for lane in lanes if lane.rows]
        for name, handle in apart.items():
            self.rows[name].handle = handle
        return ops, {lane.handle for lane in lanes if not lane.rows}

    def gather_reading(self, chunk: int, room: int) -> list[Op]:
        """Read rows with partly written answers together, unless padding would exceed `chunk` tokens, or `room`."""
        together = [name for lane in self.reading for name in lane.rows]
        alone = [name for name, row in self.rows.items() if row.may_share and name not in together]
        if not (self._is_batched and alone):
            return []
        at = self.rows[(together or alone)[0]].position
        near = [name for name in alone if abs(self.rows[name].position - at) <= chunk]
        lanes = [*(lane.rows for lane in self.lanes), [*together, *near]]
        if not near or len(together) + len(near) < 2 or not self._fits(lanes, self.held, room):
            return []
        ready = [Lane(self.rows[name].handle, (name,)) for name in near]
        ops, self.reading = gather(self.reading, ready, self._handles)
        return ops

    def join(self, room: int) -> tuple[list[Op], list[str]]:
        """Put ready rows into lanes whose padding fits `room`, and split lanes; also returns the joined rows."""

        def fit(lanes: Sequence[Sequence[str]]) -> bool:
            return self._fits([*lanes, *(lane.rows for lane in self.reading)], self.held, room)

        outside = [row for row in self.rows.values() if row.is_ready and not row.is_in_lane]
        ready = [Lane(row.handle, (row.request.request_id,)) for row in outside]
        joined, lanes = join(self.lanes, ready, self.leaving, self.most_lanes, self._handles, fit)
        in_lanes = {name for lane in lanes for name in lane.rows} if outside else set()
        for row in outside:
            row.is_in_lane = row.request.request_id in in_lanes
        halved, self.lanes = split(lanes, self.leaving, self.most_lanes, self._handles)
        return joined + halved, [row.request.request_id for row in outside if row.is_in_lane]

    def clear(self) -> None:
        for state in (self.rows, self.leaving, self.lanes, self.reading):
            state.clear()

    def _is_under_way(self, lane: Lane) -> bool:
        row = None if lane.batched else self.rows.get(lane.rows[0])
        return lane.flying > (row.void if row else 0)

    def _worth_keeping(self) -> Mapping[str, Row]:
        """Ended rows worth keeping in memory: a short one is not extracted from a batch."""
        batched = {name for lane in (*self.lanes, *self.reading) if lane.batched for name in lane.rows}
        return {
            name: row
            for name, row in self.leaving.items()
            if not row.is_lost and (row.position >= LEAST_REUSED or name not in batched)
        }
