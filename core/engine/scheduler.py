"""What the head puts on the ring next: rows that are admitted, chunks of their prompts, steps of their lanes.

The ring is first in, first out, so nothing waits for an answer that only says that a stage has kept up: a row joins a
lane as soon as the last chunk of its prompt is on the ring. A lane waits for its step, since that chooses its tokens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

from core.engine.lanes import Lane, join, leave, named, split
from core.engine.requests import Request
from core.engine.work import Chunk, Compose, Drop, New, Op, Step, Work
from core.errors import Busy
from core.events import FinishReason


class Ended(NamedTuple):
    """A request is over: "stop", "length" or "cancelled"."""

    request_id: str
    reason: FinishReason


class Progress(NamedTuple):
    """`done` of `total` tokens of a prompt went round the ring."""

    request_id: str
    done: int
    total: int


class _Row:
    """A request that runs. `handle` is the plain one of its prompt; `position`: tokens of it on the ring so far;
    `token`: what its next step feeds.
    """

    def __init__(self, request: Request, handle: int) -> None:
        self.request = request
        self.handle = handle
        self.position = 0
        self.token = request.tokens[-1]
        self.is_in_lane = False
        self._count = 0

    @property
    def is_prompt_out(self) -> bool:
        """Whether all of the prompt is on the ring but its last token, which the first step feeds."""
        return self.position >= len(self.request.tokens) - 1

    def cut(self, size: int) -> Chunk:
        """The next part of the prompt."""
        start, stop = self.position, min(self.position + size, len(self.request.tokens) - 1)
        self.position = stop
        return Chunk(self.request.request_id, self.handle, start, self.request.tokens[start:stop])

    def take(self, token: int) -> FinishReason | None:
        """The next token of the answer; says whether it is the last one, and why."""
        is_stop = token in self.request.eos and self._count >= self.request.min_tokens
        self.token = token
        self._count += 1
        if is_stop:
            return "stop"
        return "length" if self._count >= self.request.max_tokens else None


class Scheduler:
    """Who runs next on a ring of `stages` stages.

    At most `rows` requests run at the same time, whose prompts and answers may take `context` tokens together; one
    runs in any case. `queue` more may wait, first in, first out. `batched`: rows share lanes, as many as there are
    stages, so that no stage waits for the ring, or `lanes` if that is given; else each row is a lane of its own.
    `chunk`: tokens of a prompt that travel together; `window`: such chunks under way at most. Both may be set at any
    time.
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
    ) -> None:
        self.chunk, self.window = chunk, window
        self._most_rows, self._context, self._queue = rows, context, queue
        self._most_lanes = (lanes or stages) if batched else rows
        self._handles = count(1)
        self._waiting: deque[Request] = deque()
        self._rows: dict[str, _Row] = {}
        self._leaving: dict[str, _Row] = {}  # ended, but still in their lanes, and in memory
        self._lanes: list[Lane] = []  # that whose last step is oldest first
        self._to_drop: set[int] = set()
        self._owed: set[str] = set()  # rows in lanes that have not stepped since the last chunk, or never
        self._chunks = 0

    @property
    def running(self) -> int:
        """Requests that were admitted and have not ended."""
        return len(self._rows)

    @property
    def waiting(self) -> int:
        """Requests that were not admitted yet."""
        return len(self._waiting)

    @property
    def in_flight(self) -> tuple[int, ...]:
        """Handles of the lanes whose step is on the ring."""
        return tuple(lane.handle for lane in self._lanes if lane.flying)

    @property
    def idle(self) -> bool:
        """Nothing waits, nothing runs, and no stage is left with a handle once it has done what it was sent."""
        return not (self._waiting or self._rows or self._lanes or self._to_drop)

    def alive(self, request_id: str) -> bool:
        """Whether it waits or runs: what comes back for any other is nobody's."""
        return request_id in self._rows or any(request.request_id == request_id for request in self._waiting)

    def submit(self, request: Request) -> None:
        """Take a request that no other is named like, with a prompt of one token at least. Raises Busy."""
        if len(self._rows) + len(self._waiting) >= self._most_rows + self._queue:
            raise Busy(f"{self.running} requests run and {self.waiting} wait: no more are taken.")
        self._waiting.append(request)

    def cancel(self, request_id: str) -> Ended | None:
        """End it now; its row leaves its lane at the next composition. None where there is no such request."""
        if request_id in self._rows:
            self._end(request_id)
            return Ended(request_id, "cancelled")
        for request in self._waiting:
            if request.request_id == request_id:
                self._waiting.remove(request)
                return Ended(request_id, "cancelled")
        return None

    def next(self) -> Work | None:
        """What to put on the ring now; None: wait for an answer or a request.

        A chunk that is due goes before a step, else it would never go where steps come back at once: every row in a
        lane has stepped since the chunk before it, so no row waits for two.
        """
        return self._composition() or self._next_chunk() or self._next_step()

    def acked(self, work: Compose | Chunk) -> Progress | None:
        """Every stage has done it; None where there is nothing to tell of it."""
        if isinstance(work, Compose):
            return None
        self._chunks -= 1
        row = self._rows.get(work.request_id)
        return Progress(work.request_id, work.position + len(work.tokens), len(row.request.tokens)) if row else None

    def stepped(self, step: Step, tokens: Sequence[int]) -> list[Ended]:
        """The tokens that follow for the rows of `step`, in their order; those of requests that are over count for
        nothing. One of `eos` ends a request that has `min_tokens` tokens, the `max_tokens`-th ends it in any case.
        """
        self._land(step.handle)
        ended = []
        for request_id, token in zip(step.requests, tokens, strict=True):
            row = self._rows.get(request_id)
            if row and (reason := row.take(token)):
                self._end(request_id)
                ended.append(Ended(request_id, reason))
        return ended

    def failed(self, work: Work) -> list[str]:
        """A stage could not do it: the requests whose rows it touched are lost, and their handles are dropped."""
        if isinstance(work, Step):
            self._land(work.handle)
        elif isinstance(work, Chunk):
            self._chunks -= 1
        touched = named(work.ops) if isinstance(work, Compose) else {work.handle}
        if isinstance(work, Compose):  # nobody knows which of its ops were done where
            self._to_drop |= touched - {lane.handle for lane in self._lanes}
        together = {row for lane in self._lanes if lane.handle in touched for row in lane.rows}
        lost = [name for name, row in self._rows.items() if name in together or row.handle in touched]
        for request_id in lost:
            self._end(request_id)
        return lost

    def drop_all(self) -> list[str]:
        """Every request ends, and every stage forgets its handles: nothing that was put on the ring is answered."""
        lost = [*self._rows, *(request.request_id for request in self._waiting)]
        for state in (self._waiting, self._rows, self._leaving, self._lanes, self._to_drop, self._owed):
            state.clear()
        self._chunks = 0
        return lost

    def _composition(self) -> Compose | None:
        """Whatever can change now, in one frame: first what gives memory back, then what takes it."""
        ops = [*self._leave(), *self._admit(), *self._join()]
        if not ops and (self._rows or self._lanes):
            return None
        ops = [*map(Drop, sorted(self._to_drop)), *ops]
        self._to_drop.clear()
        return Compose(tuple(ops)) if ops else None

    def _leave(self) -> list[Op]:
        ops, lanes = leave(self._lanes, self._leaving)
        self._lanes = [lane for lane in lanes if lane.rows]
        self._to_drop.update(lane.handle for lane in lanes if not lane.rows)
        if self._leaving:
            held = {row for lane in lanes for row in lane.rows}
            self._leaving = {name: row for name, row in self._leaving.items() if name in held}
        return ops

    def _admit(self) -> list[Op]:
        ops: list[Op] = []
        while self._waiting and self._fits(self._waiting[0]):
            request = self._waiting.popleft()
            row = self._rows[request.request_id] = _Row(request, next(self._handles))
            ops.append(New(row.handle))
        return ops

    def _fits(self, request: Request) -> bool:
        """Whether it may run beside those that hold memory."""
        requests = [request, *(row.request for row in (*self._rows.values(), *self._leaving.values()))]
        tokens = sum(len(r.tokens) + r.max_tokens for r in requests)
        return len(requests) == 1 or (len(requests) <= self._most_rows and tokens <= self._context)

    def _join(self) -> list[Op]:
        """Rows whose prompt is out join a lane; lanes that are missing then are split off."""
        outside = [row for row in self._rows.values() if row.is_prompt_out and not row.is_in_lane]
        ready = [Lane(row.handle, (row.request.request_id,)) for row in outside]
        joined, lanes = join(self._lanes, ready, self._leaving, self._most_lanes, self._handles)
        in_lanes = {name for lane in lanes for name in lane.rows} if outside else set()
        for row in outside:
            row.is_in_lane = row.request.request_id in in_lanes
            if row.is_in_lane:
                self._owed.add(row.request.request_id)
        halved, self._lanes = split(lanes, self._leaving, self._most_lanes, self._handles)
        return joined + halved

    def _next_chunk(self) -> Chunk | None:
        row = next((row for row in self._rows.values() if not row.is_prompt_out), None)
        if row is None or self._owed or self._chunks >= self.window:
            return None
        self._chunks += 1
        self._owed = {name for name, other in self._rows.items() if other.is_in_lane}
        return row.cut(self.chunk)

    def _next_step(self) -> Step | None:
        number = next((number for number, lane in enumerate(self._lanes) if not lane.flying), None)
        if number is None:
            return None
        lane = self._lanes.pop(number)
        self._lanes.append(lane._replace(flying=True))
        self._owed.difference_update(lane.rows)
        return Step(lane.handle, lane.rows, tuple(self._rows[name].token for name in lane.rows))

    def _land(self, handle: int) -> None:
        self._lanes = [lane._replace(flying=False) if lane.handle == handle else lane for lane in self._lanes]

    def _end(self, request_id: str) -> None:
        row = self._rows.pop(request_id)
        self._owed.discard(request_id)
        if row.is_in_lane:
            self._leaving[request_id] = row
        else:
            self._to_drop.add(row.handle)
