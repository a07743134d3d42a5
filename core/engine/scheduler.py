"""Decides what the head puts on the ring next: compositions, chunks of prompts, steps of lanes.

The ring is first in, first out, so no work waits for a mere acknowledgement: a row joins a lane as soon as the last
chunk of its prompt is on the ring. A lane waits for its step, since that chooses its tokens.

After workers were lost, written answers are read again after their prompts, before any new prompt and all together, so
that none waits for the others. Answers that are nearly done go first, alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple

from core.engine.admission import Admission, turn_of
from core.engine.constraints import RowGrammar
from core.engine.drafting import Drafter, StepPlace
from core.engine.lane_table import HeldRow, LaneTable
from core.engine.lanes import Lane, named
from core.engine.pacing import chunk_behind
from core.engine.prefix_cache import CachedPrefix, PrefixCache
from core.engine.requests import Request
from core.engine.ring_work import Chunk, Compose, Drop, Op, Step, Work
from core.engine.running import Row
from core.events import Batch, BatchLane, BatchRow, FinishReason
from core.settings import ROW_GROWTH

MAX_SCORED_TOKENS: Final = 64  # prompt tokens whose logits, a whole vocabulary each, are in memory at a time


class EndedRow(NamedTuple):
    """The end of a request."""

    request_id: str
    reason: FinishReason
    reused: int = 0  # tokens of its prefix that were cached when it was admitted
    drafted: int = 0  # draft tokens that went with its steps
    accepted: int = 0  # of those, the right ones


class Stepped(NamedTuple):
    """The result of a step: tokens that each of its rows took, and the requests that ended with them."""

    taken: tuple[int, ...]
    ended: list[EndedRow]


class PrefillProgress(NamedTuple):
    """`done` of `total` tokens of a prefix went round the ring."""

    request_id: str
    done: int
    total: int


class Scheduler:
    """Chooses the next work for a ring of `stages` stages.

    Up to `rows` requests run, which share `context` tokens of memory; one always runs. Up to `queue` more wait. A row
    starts when there is memory for its prefix and `growth` tokens more. If running rows grow beyond `context`, the one
    that came last is displaced: the rest of its answer waits in front of the queue. If `batched`, rows share `lanes`
    lanes, by default one per stage, so that no stage waits for the ring; else each row has its own. `chunk`: tokens of
    a prompt that travel together; `window`: chunks on the ring at most; both may be set at any time.

    Ended rows stay cached, where running ones leave room, for prompts that start the same way. Up to `draft` draft
    tokens go with a lane of one plain row; if it is the only one, a `drafter` may add some and keep several steps in
    flight. Caches can be trimmed while they hold fewer tokens than `trim_limit`; None: always.
    """

    def __init__(
        self,
        *,
        stages: int,
        rows: int,
        context: int,
        chunk: int,
        window: int,
        batched: bool,
        queue: int,
        lanes: int | None = None,
        draft: int = 0,
        trim_limit: int | None = None,
        drafter: Drafter | None = None,
        growth: int = ROW_GROWTH,
    ) -> None:
        self._one_drafter = drafter
        self.chunk, self.window = chunk, window
        self._trim_limit = trim_limit
        step, growth = 1 + draft, max(growth, 1 + draft)
        handles = count(1)
        # even a row that runs alone may leave two: its prompt, and its prompt with the answer
        self._prefixes = PrefixCache(rows + 1, context, trim_limit, handles)
        most_lanes = (lanes or stages) if batched else rows
        self._table = LaneTable(most_lanes, handles, batched=batched, step=step, growth=growth)
        self._queue = Admission(self._table, self._prefixes, most_rows=rows, queue=queue, draft=draft, growth=growth)
        self._ops: list[Op] = []  # for the next composition
        self._owed: set[str] = set()  # rows in lanes that have not stepped since the last chunk, or ever
        self._chunks = 0  # on the ring
        self._has_lost = False  # rows whose memory must be freed
        self._displaced: list[Request] = []

    @property
    def running(self) -> int:
        return len(self._table.rows)

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def queued(self) -> set[str]:
        return {request.request_id for request in self._queue.requests}

    @property
    def in_flight(self) -> tuple[int, ...]:
        return tuple(lane.handle for lane in self._table.lanes if lane.flying)

    @property
    def batch(self) -> Batch:
        """All running and waiting requests, for the screens."""
        table = self._table
        return Batch(
            rows=_row_views(table.rows, self._queue.requests, table.lanes),
            lanes=_lane_views(table.lanes, table.leaving),
            chunks=self._chunks,
            used_tokens=sum(row.position for row in table.held),
            reserved_tokens=table.reserved_tokens,
            parked_tokens=sum(len(parked.tokens) for parked in self.parked),
        )

    @property
    def idle(self) -> bool:
        """Nothing waits or runs; once the stages have done their work, they hold only cached rows."""
        return not self._queue and self._table.is_empty and not self._ops

    @property
    def parked(self) -> tuple[CachedPrefix, ...]:
        return self._prefixes.rows

    @property
    def held_rows(self) -> list[HeldRow]:
        return self._table.held_rows()

    def reusable(self, request: Request) -> int:
        return self._prefixes.reusable(request)

    def alive(self, request_id: str) -> bool:
        """Whether it runs; results for any other request don't count."""
        return request_id in self._table.rows

    def counting(self, step: Step) -> list[int]:
        """Rows of the returning `step` that choose tokens now: running ones, unless they follow wrong draft tokens."""
        rows = enumerate(map(self._table.rows.get, step.requests))
        return [at for at, row in rows if row and not row.void]

    def submit(self, request: Request, *, may_draft: bool = True, grammar: RowGrammar | None = None) -> None:
        """Take a request with an unused id, at least one prompt token, and an answer that has not ended. `may_draft`:
        any draft tokens that its `grammar` allows may go with its steps; without it only tokens that the grammar
        forces. Raises Busy.
        """
        self._queue.submit(request, may_draft=may_draft, grammar=grammar)

    def cancel(self, request_id: str) -> EndedRow | None:
        """End it now; its row leaves its lane at the next composition. None for an unknown request."""
        if request_id in self._table.rows:
            ended = self._end(request_id, "cancelled")
            self._leave()
            return ended
        row = self._queue.cancel(request_id)
        return _ended(row, "cancelled") if row else None

    def hold(self, tokens: Sequence[int]) -> CachedPrefix:
        """Make a row for caches from elsewhere, which no prompt reuses before `settle`. Raises Busy."""
        parked, ops = self._prefixes.hold(tuple(tokens), self._table.most_tokens)
        self._ops += ops
        return parked

    def settle(self, handle: int) -> None:
        self._prefixes.settle(handle)

    def gone(self, handle: int) -> None:
        self._ops += self._prefixes.lose({handle})

    def pin(self, handle: int) -> None:
        self._prefixes.pin(handle, self._table.most_tokens)

    def unpin(self, handle: int) -> None:
        self._prefixes.unpin(handle)

    def next(self) -> Work | None:
        """The work to put on the ring now; None: wait for a result or a request. A chunk that is due goes before a
        step: it would never go where steps come back at once. Every row in a lane has stepped since the last chunk, so
        no row waits for two.
        """
        if self._is_steady:
            return None
        self._displace()
        if work := self._composition():
            return work
        if len(self._table.held) > 1 and not self._prefixes.leaves_room(self._claimed_tokens):
            return None  # until displaced rows have left
        return self._next_chunk() or self._next_step() or self._next_window()

    def take_displaced(self) -> list[Request]:
        """The rest of each request that lost its row since the last call. It is queued; its tokens so far count."""
        displaced, self._displaced = self._displaced, []
        return displaced

    def _displace(self) -> None:
        """Take their rows from the requests that came last, if those before them need the memory."""
        while not self._table.fits_in(self._prefixes.room):
            row = [*self._table.rows.values()][-1]
            self._end(row.request.request_id, "cancelled")
            self._queue.put_back(row)
            self._displaced.append(row.request)
            self._leave()

    @property
    def _is_steady(self) -> bool:
        """Whether nothing can change before a step is back: each lane has one on the ring. Called for each token."""
        table = self._table
        if self._ops or self._has_lost or table.reading or self._one_drafter or not table.lanes:
            return False
        return table.all_flying and not self._queue.is_due and self._prefixes.leaves_room(self._claimed_tokens)

    def ahead(self, step: Step) -> Step | None:
        """The step after the returning `step`, to be put before its tokens are known; `stepped` gets them next. A row
        that they end has one step too many on the ring, whose result doesn't count. None if the tokens are needed
        first, or other work is due.
        """
        if step.drafts or not self._may_go_ahead(step.requests):
            return None
        for name in step.requests:
            self._table.rows[name].go_ahead()
        self._note_went(step, StepPlace.ALONE)
        self._table.take_off(step.handle)
        return Step(step.handle, step.requests, ())

    def foresees(self, handle: int) -> tuple[str, ...]:
        """The requests of a lane's step on the ring, if the next one will probably go `ahead` of it."""
        lane = next((lane for lane in self._table.lanes if lane.handle == handle and lane.flying == 1), None)
        return lane.rows if lane and self._may_go_ahead(lane.rows) else ()

    def _may_go_ahead(self, requests: Sequence[str]) -> bool:
        table = self._table
        is_due = self._queue.is_due or self._has_lost or any(not isinstance(op, Drop) for op in self._ops)
        is_split = len(requests) == 1 or len(table.lanes) >= table.most_lanes
        rows = [table.rows[name] for name in requests if name in table.rows]
        is_whole = len(rows) == len(requests) and all(row.may_go_ahead(self._drafter) for row in rows)
        if is_due or not (table.all_joined and is_split and is_whole):
            return False
        return self._prefixes.leaves_room(self._claimed_tokens)

    def acked(self, work: Compose | Chunk) -> list[PrefillProgress]:
        """Note that every stage has done it."""
        if isinstance(work, Compose):
            return []
        self._chunks -= 1
        progress = []
        for request_id, read in zip(work.requests, work.read, strict=True):
            if row := self._table.rows.get(request_id):
                row.read = read
                progress.append(PrefillProgress(request_id, row.read, row.prefix_tokens))
        return progress

    def stepped(self, step: Step, tokens: Sequence[Sequence[int]]) -> Stepped:
        """Take the tokens of each row of `step`: one, and one more after each right draft token. Those of rows that are
        not `counting` are ignored. One of `eos` ends a request that has `min_tokens` tokens, the `max_tokens`-th always
        does, and later tokens are ignored.
        """
        self._note_came(counts=bool(self.counting(step)))
        self._table.land(step.handle)
        counts, ended = [], []
        for request_id, chosen in zip(step.requests, tokens, strict=True):
            row = self._table.rows.get(request_id)
            if row and row.void:
                row.void -= 1
                row = None
            taken, reason = row.take(chosen, self._drafter) if row else (0, None)
            counts.append(taken)
            if reason:
                ended.append(self._end(request_id, reason))
        self._leave()
        return Stepped(tuple(counts), ended)

    def failed(self, work: Work) -> list[str]:
        """End the requests whose rows are touched by work that failed on a stage, and drop their handles."""
        table = self._table
        if isinstance(work, Step):
            self._note_came(counts=False)
            table.land(work.handle)
        elif isinstance(work, Chunk):
            self._chunks -= 1
        self._has_lost = True
        touched = named(work.ops) if isinstance(work, Compose) else {work.handle}
        self._ops += self._prefixes.lose(touched)
        if isinstance(work, Compose):  # it is unknown which of its ops were done
            self._drop(touched - {lane.handle for lane in (*table.lanes, *table.reading)})
        lost = table.lose(touched)
        for request_id in lost:
            self._end(request_id, "error")
        self._leave()
        return lost

    def drop_all(self) -> list[str]:
        """End every request and reset: every stage forgets its handles, and no work on the ring is answered."""
        lost = [*self._table.rows, *self._queue.clear()]
        for state in (self._table, self._owed, self._prefixes, self._ops, self._displaced):
            state.clear()
        self._chunks, self._has_lost = 0, False
        if self._one_drafter:
            self._one_drafter.forget()
        return lost

    def _composition(self) -> Compose | None:
        self._ops += self._queue.admit(self.chunk)
        self._snapshot()
        ops, empty = self._table.part_reading()
        self._ops += ops
        self._drop(empty)
        self._ops += self._table.gather_reading(self.chunk, self._prefixes.room)
        ops, joined = self._table.join(self._prefixes.room)
        self._ops += ops
        self._owed.update(joined)
        claimed = self._claimed_tokens
        self._ops += self._prefixes.make_room(claimed)
        may_wait = all(isinstance(op, Drop) for op in self._ops) and self._prefixes.leaves_room(claimed)
        if not self._ops or (may_wait and not self._has_lost and not self._table.is_empty):
            return None
        self._prefixes.dropped()
        self._has_lost = False
        ops, self._ops = self._ops, []
        return Compose(tuple(ops))

    def _snapshot(self) -> None:
        for row in self._table.rows.values():
            if row.is_kept_now:
                row.kept_at.remove(row.position)
                self._ops += self._prefixes.snapshot(self._table.copied(row), row.held, self._claimed_tokens)

    def _next_chunk(self) -> Chunk | None:
        rows_by_id = self._table.rows
        unread = [row.request for row in rows_by_id.values() if not row.is_ready]
        if not unread or self._owed or self._chunks >= self.window:
            return None
        self._chunks += 1
        self._owed = {name for name, other in rows_by_id.items() if other.is_in_lane}
        lane = self._table.lane_of(min(unread, key=turn_of).request_id)
        rows = [rows_by_id[name] for name in lane.rows]
        positions = tuple(row.position for row in rows)
        most = chunk_behind(max(positions), self.chunk)
        if rows[0].request.scores_prompt:
            most = min(most, MAX_SCORED_TOKENS)
        share = max(1, most // len(rows))
        # no chunk crosses a multiple of its size, so a prompt that is partly cached is read in the chunks of a new one
        size = min(share - max(positions) % share, *(row.unread for row in rows))
        return Chunk(lane.rows, lane.handle, positions, tuple(row.cut(size) for row in rows))

    def _next_step(self) -> Step | None:
        lane = self._table.next_lane()
        if lane is None:
            return None
        self._table.take_off(lane.handle)
        self._owed.difference_update(lane.rows)
        rows = [self._table.rows[name] for name in lane.rows]
        drafts = () if lane.batched else rows[0].draft(self._trim_limit, self._drafter)
        step = Step(lane.handle, lane.rows, tuple(row.feed(drafts) for row in rows), drafts)
        self._note_went(step, StepPlace.AFTER_WRONG if lane.flying else StepPlace.ALONE)
        return step

    def _next_window(self) -> Step | None:
        """A step after one on the ring, as if all drafts there were right; else their trim follows it."""
        drafter, lanes = self._drafter, self._table.lanes
        if drafter is None or self._queue.is_due or len(lanes) != 1 or lanes[0].batched:
            return None
        (lane,) = lanes
        row = self._table.rows.get(lane.rows[0])
        if row is None or not self._prefixes.leaves_room(self._claimed_tokens):
            return None
        draft = row.draft_on(self._trim_limit, drafter)
        if not draft:
            return None
        self._table.take_off(lane.handle)
        row.feed_on(draft)
        step = Step(lane.handle, lane.rows, draft[:1], draft[1:])
        self._note_went(step, StepPlace.AFTER_DRAFT)
        return step

    def _note_went(self, step: Step, place: StepPlace) -> None:
        if self._one_drafter:
            is_alone = self.running == 1 and not self._chunks
            self._one_drafter.went(1 + len(step.drafts), place if is_alone else StepPlace.AMONG_OTHERS)

    def _note_came(self, *, counts: bool) -> None:
        if self._one_drafter:
            self._one_drafter.came(counts=counts and self._drafter is not None)

    @property
    def _drafter(self) -> Drafter | None:
        """The drafter, if exactly one request runs: several keep the stages busy anyway."""
        return self._one_drafter if self.running == 1 else None

    def _leave(self) -> None:
        """Trim wrong draft tokens, then take ended rows out of lanes without a step on the ring, and cache them."""
        self._ops += self._table.trim_wrong_drafts()
        removed = self._table.remove_ended()
        self._ops += removed.ops
        self._drop(removed.empty)
        self._has_lost |= removed.frees_lost
        for row, handle in removed.apart:
            self._park(row, handle)

    def _end(self, request_id: str, reason: FinishReason) -> EndedRow:
        row, is_in_lane = self._table.end(request_id)
        self._owed.discard(request_id)
        if row.is_lost and not is_in_lane:
            self._drop({row.handle})
        elif not is_in_lane:
            self._park(row, row.handle)
        return _ended(row, reason)

    def _park(self, row: Row, handle: int) -> None:
        self._ops += self._prefixes.park(handle, row.held, self._claimed_tokens)

    def _drop(self, handles: Collection[int]) -> None:
        self._ops += [drop for drop in map(Drop, sorted(handles)) if drop not in self._ops]

    @property
    def _claimed_tokens(self) -> int:
        return self._table.claimed_tokens(self.chunk)


def _ended(row: Row, reason: FinishReason) -> EndedRow:
    return EndedRow(row.request.request_id, reason, row.cached or 0, row.drafted, row.accepted)


def _row_views(rows: Mapping[str, Row], waiting: Iterable[Request], lanes: Sequence[Lane]) -> tuple[BatchRow, ...]:
    """Running rows in the order of their admission, then waiting requests in the order of the queue."""
    numbers = {name: number for number, lane in enumerate(_ordered(lanes), 1) for name in lane.rows}
    running = (_running(row, numbers.get(name)) for name, row in rows.items())
    return (*running, *(_waiting(request) for request in waiting))


def _lane_views(lanes: Sequence[Lane], gone: Mapping[str, Row]) -> tuple[BatchLane, ...]:
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


def _waiting(request: Request) -> BatchRow:
    return BatchRow(
        request_id=request.request_id,
        prompt_tokens=len(request.tokens),
        written=len(request.written),
        max_tokens=request.max_tokens,
    )
