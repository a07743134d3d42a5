"""What the head puts on the ring next: rows that are admitted, chunks of their prompts, steps of their lanes.

The ring is first in, first out, so nothing waits for an answer that only says that a stage has kept up: a row joins a
lane as soon as the last chunk of its prompt is on the ring. A lane waits for its step, since that chooses its tokens.

Where the workers were lost, what is written already is read again behind its prompts: before any new prompt, and for
all rows together, so that none waits until the others are read, and then for the steps of those. What is nearly done
goes first, by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import count
from math import inf
from typing import Final, NamedTuple

from core.engine.batch import lane_views, row_views
from core.engine.constraints import RowGrammar
from core.engine.drafting import Drafter, StepPlace
from core.engine.lanes import Lane, gather, join, leave, named, split
from core.engine.memory_use import claimed_tokens, copied_by, lent_rows, reserved_tokens
from core.engine.pacing import chunk_behind
from core.engine.prefix_cache import LEAST_REUSED, CachedPrefix, Lent, PrefixCache, common_prefix, tokens_of
from core.engine.requests import Request
from core.engine.ring_work import Chunk, Compose, Drop, Op, Step, Trim, Work
from core.engine.running import Row
from core.errors import Busy
from core.events import Batch, FinishReason

MAX_SCORED_TOKENS: Final = 64  # tokens of a prompt whose logits, a whole vocabulary each, are in memory at a time


class EndedRow(NamedTuple):
    """A request is over: "stop", "length" or "cancelled". `reused`: so many tokens of its beginning were in memory when
    it was admitted. `drafted`: guessed tokens that went with its steps, of which `accepted` were right.
    """

    request_id: str
    reason: FinishReason
    reused: int = 0
    drafted: int = 0
    accepted: int = 0


class Stepped(NamedTuple):
    """How many of the tokens each row of a step took, and the requests that ended with them."""

    taken: tuple[int, ...]
    ended: list[EndedRow]


class PrefillProgress(NamedTuple):
    """`done` of `total` tokens of a beginning went round the ring."""

    request_id: str
    done: int
    total: int


class HeldRow(NamedTuple):
    """Where the stages hold the row of a request, once they have done what is on the ring: the first `tokens` tokens of
    its history are in row `row` of `handle`, perhaps with guesses behind them.
    """

    request_id: str
    handle: int
    row: int
    tokens: int


class _Waiting(NamedTuple):
    """A request that was not admitted yet, how many guesses may go with each of its steps, what allows them, and
    whether only such as that forces.
    """

    request: Request
    draft: int
    grammar: RowGrammar | None
    sure: bool


class Scheduler:
    """Who runs next on a ring of `stages` stages.

    At most `rows` requests run at the same time, whose prompts and answers may take `context` tokens together; one
    runs in any case. `queue` more may wait, first in, first out, but behind those of which something is written.
    `batched`: rows share lanes, as many as there are stages, so that no stage waits for the ring, or `lanes` if that is
    given; else each row is a lane of its own. `chunk`: tokens of prompts that travel together; `window`: such chunks
    under way at most. Both may be set at any time.

    Rows that end stay in memory, as far as those that run leave some, for prompts that begin as they do. With a lane of
    one plain row at most `draft` guessed tokens travel; where it is the only one, a `drafter` guesses, too, and several
    of its steps may be on the ring. `trim_limit`: caches of this model can be trimmed while they hold fewer tokens;
    None: always.
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
    ) -> None:
        self._one_drafter = drafter
        self.chunk, self.window = chunk, window
        self._most_rows, self._queue, self._draft, self._trim_limit = rows, queue, draft, trim_limit
        self._most_lanes = (lanes or stages) if batched else rows
        self._is_batched = batched
        self._handles = count(1)
        # even a row that runs alone may leave two: its prompt, and its prompt with the answer
        self._prefixes = PrefixCache(rows + 1, context, trim_limit, self._handles)
        self._waiting: dict[str, _Waiting] = {}
        self._rows: dict[str, Row] = {}
        self._leaving: dict[str, Row] = {}  # ended, but still in their lanes, and in memory
        self._lanes: list[Lane] = []  # that whose last step is oldest first
        self._shared: list[Lane] = []  # rows that are read together: one such lane at most
        self._ops: list[Op] = []  # for the next composition
        self._owed: set[str] = set()  # rows in lanes that have not stepped since the last chunk, or never
        self._chunks = 0
        self._has_lost = False  # rows whose memory is to be given back

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
    def batch(self) -> Batch:
        """All that runs and waits, for the person. Its lanes are as they are between two works."""
        held = (*self._rows.values(), *self._leaving.values())
        return Batch(
            rows=row_views(self._rows, [each.request for each in self._waiting.values()], self._lanes),
            lanes=lane_views(self._lanes, self._leaving),
            chunks=self._chunks,
            used_tokens=sum(row.position for row in held),
            reserved_tokens=self._reserved_tokens,
            parked_tokens=sum(len(parked.tokens) for parked in self.parked),
        )

    @property
    def idle(self) -> bool:
        """Nothing waits, nothing runs, and once a stage has done what it was sent, it holds what is parked only."""
        return not (self._waiting or self._rows or self._lanes or self._ops)

    @property
    def parked(self) -> tuple[CachedPrefix, ...]:
        """Rows of requests that have ended, or that were settled; the one that was used last is last."""
        return self._prefixes.rows

    @property
    def held_rows(self) -> list[HeldRow]:
        """The rows that run, behind what `next` gave last."""
        shared = (*self._lanes, *self._shared)
        lanes = {name: (lane, at) for lane in shared for at, name in enumerate(lane.rows)}
        rows = []
        for name, row in self._rows.items():
            lane, at = lanes.get(name, (Lane(row.handle, (name,)), 0))
            rows.append(HeldRow(name, lane.handle, at, row.position))
        return rows

    def reusable(self, request: Request) -> int:
        """How many tokens of the beginning of `request` are in memory."""
        return self._prefixes.reusable(request)

    def alive(self, request_id: str) -> bool:
        """Whether it runs: what comes back for any other is nobody's."""
        return request_id in self._rows

    def counting(self, step: Step) -> list[int]:
        """Which rows of `step`, which comes back, choose their tokens now: those that run, but not behind guesses that
        were wrong.
        """
        rows = enumerate(map(self._rows.get, step.requests))
        return [at for at, row in rows if row and not row.void]

    def submit(self, request: Request, *, guess: bool = True, grammar: RowGrammar | None = None) -> None:
        """Take a request that no other is named like but one that is over, with a prompt of one token at least, and an
        answer that has not ended; `guess`: guessed tokens may go with its steps, as far as its `grammar` allows them,
        and first what that forces; else nothing but that. Raises Busy.
        """
        if len(self._rows) + len(self._waiting) >= self._most_rows + self._queue:
            raise Busy(f"{self.running} requests are running and {self.waiting} are waiting; no more are accepted.")
        self._waiting[request.request_id] = _Waiting(
            request, self._draft if guess or grammar else 0, grammar, sure=not guess
        )
        self._waiting = dict(sorted(self._waiting.items(), key=lambda each: _turn(each[1].request)))

    def cancel(self, request_id: str) -> EndedRow | None:
        """End it now; its row leaves its lane at the next composition. None where there is no such request."""
        if request_id in self._rows:
            ended = self._end(request_id, "cancelled")
            self._leave()
            return ended
        return EndedRow(request_id, "cancelled") if self._waiting.pop(request_id, None) else None

    def hold(self, tokens: Sequence[int]) -> CachedPrefix:
        """A row that comes from elsewhere: what `next` gives next is a composition that has its Restore, and its caches
        come behind that. No prompt reuses it before `settle`. Raises Busy where the memory is needed.
        """
        parked, ops = self._prefixes.hold(tuple(tokens), self._reserved_tokens)
        self._ops += ops
        return parked

    def settle(self, handle: int) -> None:
        """All of a row from elsewhere is on the ring: it is parked now."""
        self._prefixes.settle(handle)

    def gone(self, handle: int) -> None:
        """Give up a parked row, or one from elsewhere; nothing if it is no longer there."""
        self._ops += self._prefixes.lose({handle})

    def pin(self, handle: int) -> None:
        """Keep a parked row as it is until it is unpinned as often. Raises KeyError where it is not parked, and Busy
        where those that run may come to need its memory.
        """
        self._prefixes.pin(handle, self._reserved_tokens)

    def unpin(self, handle: int) -> None:
        """The reverse of `pin`; nothing if it is no longer there."""
        self._prefixes.unpin(handle)

    def next(self) -> Work | None:
        """What to put on the ring now; None: wait for an answer or a request.

        A chunk that is due goes before a step, else it would never go where steps come back at once: every row in a
        lane has stepped since the chunk before it, so no row waits for two.
        """
        if self._is_steady:
            return None
        return self._composition() or self._next_chunk() or self._next_step() or self._next_window()

    @property
    def _is_steady(self) -> bool:
        """Whether nothing can change before a step is back: each lane has one on the ring. Asked for each token."""
        if self._waiting or self._ops or self._has_lost or self._shared or self._one_drafter or not self._lanes:
            return False
        if not all(lane.flying for lane in self._lanes) or not all(row.is_in_lane for row in self._rows.values()):
            return False
        return self._prefixes.leaves_room(self._claimed_tokens)

    def ahead(self, step: Step) -> Step | None:
        """The step behind `step`, which is back, to be put before anybody knows the tokens that it chose; `stepped` is
        told of them next. A row that they end has a step too many on the ring: nobody takes what comes of it.

        None where the tokens are needed first, or something else is.
        """
        if step.drafts or not self._may_go_ahead(step.requests):
            return None
        for name in step.requests:
            self._rows[name].go_ahead()
        self._note_went(step, StepPlace.ALONE)
        number = next(number for number, lane in enumerate(self._lanes) if lane.handle == step.handle)
        lane = self._lanes.pop(number)
        self._lanes.append(lane._replace(flying=lane.flying + 1))
        return Step(step.handle, step.requests, ())

    def foresees(self, handle: int) -> tuple[str, ...]:
        """The requests for which the step of a lane that is on the ring chooses, if as it looks the next one goes
        `ahead` of that.
        """
        lane = next((lane for lane in self._lanes if lane.handle == handle and lane.flying == 1), None)
        return lane.rows if lane and self._may_go_ahead(lane.rows) else ()

    def _may_go_ahead(self, requests: Sequence[str]) -> bool:
        is_due = self._waiting or self._has_lost or any(not isinstance(op, Drop) for op in self._ops)
        is_joined = all(row.is_in_lane for row in self._rows.values())
        is_split = len(requests) == 1 or len(self._lanes) >= self._most_lanes
        rows = [self._rows[name] for name in requests if name in self._rows]
        is_whole = len(rows) == len(requests) and all(row.may_go_ahead(self._drafter) for row in rows)
        if is_due or not (is_joined and is_split and is_whole):
            return False
        return self._prefixes.leaves_room(self._claimed_tokens)

    def acked(self, work: Compose | Chunk) -> list[PrefillProgress]:
        """Every stage has done it: what there is to tell of it."""
        if isinstance(work, Compose):
            return []
        self._chunks -= 1
        told = []
        for request_id, read in zip(work.requests, work.read, strict=True):
            if row := self._rows.get(request_id):
                row.read = read
                told.append(PrefillProgress(request_id, row.read, row.given))
        return told

    def stepped(self, step: Step, tokens: Sequence[Sequence[int]]) -> Stepped:
        """The tokens that follow for each row of `step`, in their order: one at least, and behind each draft that was
        right one more. Those of rows that are not `counting` count for nothing. One of `eos` ends a request that has
        `min_tokens` tokens, the `max_tokens`-th ends it in any case, and what is behind that counts for nothing.
        """
        self._note_came(counts=bool(self.counting(step)))
        self._land(step.handle)
        counts, ended = [], []
        for request_id, chosen in zip(step.requests, tokens, strict=True):
            row = self._rows.get(request_id)
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
        """A stage could not do it: the requests whose rows it touched are lost, and their handles are dropped."""
        if isinstance(work, Step):
            self._note_came(counts=False)
            self._land(work.handle)
        elif isinstance(work, Chunk):
            self._chunks -= 1
        self._has_lost = True
        touched = named(work.ops) if isinstance(work, Compose) else {work.handle}
        self._ops += self._prefixes.lose(touched)
        if isinstance(work, Compose):  # nobody knows which of its ops were done where
            self._drop(touched - {lane.handle for lane in (*self._lanes, *self._shared)})
        together = {row for lane in (*self._lanes, *self._shared) if lane.handle in touched for row in lane.rows}
        for name, row in (*self._rows.items(), *self._leaving.items()):
            row.is_lost = row.is_lost or name in together or row.handle in touched
        lost = [name for name, row in self._rows.items() if row.is_lost]
        for request_id in lost:
            self._end(request_id, "error")
        self._leave()
        return lost

    def drop_all(self) -> list[str]:
        """Every request ends, and every stage forgets its handles: nothing that was put on the ring is answered."""
        lost = [*self._rows, *self._waiting]
        rows = (self._waiting, self._rows, self._leaving, self._owed, self._prefixes)
        for state in (*rows, self._lanes, self._shared, self._ops):
            state.clear()
        self._chunks, self._has_lost = 0, False
        if self._one_drafter:
            self._one_drafter.forget()
        return lost

    def _composition(self) -> Compose | None:
        """Whatever can change now, in one frame: first what gives memory back, then what takes it."""
        self._admit()
        self._snapshot()
        self._share()
        self._join()
        claimed = self._claimed_tokens
        self._ops += self._prefixes.make_room(claimed)
        may_wait = all(isinstance(op, Drop) for op in self._ops) and self._prefixes.leaves_room(claimed)
        if not self._ops or (may_wait and not self._has_lost and (self._rows or self._lanes)):
            return None
        self._prefixes.dropped()
        self._has_lost = False
        ops, self._ops = self._ops, []
        return Compose(tuple(ops))

    def _admit(self) -> None:
        lent: list[Lent] | None = None
        for request, draft, grammar, sure in [*self._waiting.values()]:
            held = len(self._rows) + len(self._leaving)
            if held >= self._most_rows or not self._prefixes.fits(request, self._reserved_tokens):
                return
            if request.request_id in self._leaving:
                return  # or it would be given what comes back for the one before it
            lent = lent_rows(self._rows, (*self._lanes, *self._shared)) if lent is None else lent
            if self._waits_for_another(request, lent):
                continue
            branch = 0 if self._trims(request) else self._prefixes.branch(request, lent)
            ops, handle, reused = self._prefixes.open(request, self._claimed_tokens, lent)
            self._ops += ops
            del self._waiting[request.request_id]
            self._rows[request.request_id] = row = Row(request, handle, reused, draft, grammar, sure=sure)
            if not self._trims(request):
                row.keep_at(len(request.tokens) - 1)
                if branch - reused >= self.chunk:
                    row.keep_at(branch)

    def _trims(self, request: Request) -> bool:
        """Whether its row can be trimmed to any of its beginnings when it has ended."""
        return self._prefixes.can_trim(tokens_of(request) - 1)

    def _waits_for_another(self, request: Request, lent: Sequence[Lent]) -> bool:
        """Whether a row that runs will soon lend more of the beginning of `request` than it does now, and a chunk more
        than is at rest: then that is read once. What is written already is read again with others, not after them.
        """
        if request.left is not None or request.scores_prompt:
            return False
        start, now = request.beginning[:-1], self._prefixes.reusable(request, lent)
        least = max(self._prefixes.reusable(request) + self.chunk, now + 1)
        for row in self._rows.values():
            common = 0 if row.is_lost else common_prefix(row.history, start)
            if common < least:
                continue
            if self._prefixes.can_trim(max(row.position, common) + self.chunk):
                return True
            if row.position <= common < row.given:
                row.keep_at(common)
                return True
        return False

    def _snapshot(self) -> None:
        """Prompts that are out are kept where the row cannot be trimmed to them when it has ended."""
        for row in self._rows.values():
            if row.is_kept_now:
                row.kept_at.remove(row.position)
                copied = copied_by(row, (*self._shared, *self._lanes))
                self._ops += self._prefixes.snapshot(copied, row.held, self._claimed_tokens)

    def _share(self) -> None:
        """A row that is read leaves those that are read together; others that are read again come in, but for those so
        far behind or ahead that they would be padded with more than a chunk.
        """
        read = {name for lane in self._shared for name in lane.rows if self._rows[name].is_ready}
        ops, lanes, apart = leave(self._shared, read, read, self._handles)
        self._ops += ops
        self._drop({lane.handle for lane in lanes if not lane.rows})
        self._shared = [lane for lane in lanes if lane.rows]
        for name, handle in apart.items():
            self._rows[name].handle = handle
        together = [name for lane in self._shared for name in lane.rows]
        alone = [name for name, row in self._rows.items() if row.may_share and name not in together]
        if not (self._is_batched and alone):
            return
        at = self._rows[(together or alone)[0]].position
        near = [name for name in alone if abs(self._rows[name].position - at) <= self.chunk]
        if near and len(together) + len(near) > 1:
            ready = [Lane(self._rows[name].handle, (name,)) for name in near]
            ops, self._shared = gather(self._shared, ready, self._handles)
            self._ops += ops

    def _join(self) -> None:
        """Rows that are ready join a lane; lanes that are missing then are split off."""
        outside = [row for row in self._rows.values() if row.is_ready and not row.is_in_lane]
        ready = [Lane(row.handle, (row.request.request_id,)) for row in outside]
        joined, lanes = join(self._lanes, ready, self._leaving, self._most_lanes, self._handles)
        in_lanes = {name for lane in lanes for name in lane.rows} if outside else set()
        for row in outside:
            row.is_in_lane = row.request.request_id in in_lanes
            if row.is_in_lane:
                self._owed.add(row.request.request_id)
        halved, self._lanes = split(lanes, self._leaving, self._most_lanes, self._handles)
        self._ops += joined + halved

    def _next_chunk(self) -> Chunk | None:
        unread = [row.request for row in self._rows.values() if not row.is_ready]
        if not unread or self._owed or self._chunks >= self.window:
            return None
        self._chunks += 1
        self._owed = {name for name, other in self._rows.items() if other.is_in_lane}
        first = min(unread, key=_turn).request_id
        alone = Lane(self._rows[first].handle, (first,))
        lane = next((lane for lane in self._shared if first in lane.rows), alone)
        rows = [self._rows[name] for name in lane.rows]
        positions = tuple(row.position for row in rows)
        most = chunk_behind(max(positions), self.chunk)
        if rows[0].request.scores_prompt:
            most = min(most, MAX_SCORED_TOKENS)
        size = min(max(1, most // len(rows)), *(row.unread for row in rows))
        return Chunk(lane.rows, lane.handle, positions, tuple(row.cut(size) for row in rows))

    def _next_step(self) -> Step | None:
        number = next((number for number, lane in enumerate(self._lanes) if not self._is_under_way(lane)), None)
        if number is None:
            return None
        lane = self._lanes.pop(number)
        self._lanes.append(lane._replace(flying=lane.flying + 1))
        self._owed.difference_update(lane.rows)
        rows = [self._rows[name] for name in lane.rows]
        drafts = () if lane.batched else rows[0].guess(self._trim_limit, self._drafter)
        step = Step(lane.handle, lane.rows, tuple(row.feed(drafts) for row in rows), drafts)
        self._note_went(step, StepPlace.BEHIND_WRONG if lane.flying else StepPlace.ALONE)
        return step

    def _next_window(self) -> Step | None:
        """Behind a step that is on the ring, as if all guesses there were right. Where they are not, their trim follows
        it, and whatever comes behind that is right again.
        """
        drafter = self._drafter
        if drafter is None or self._waiting or len(self._lanes) != 1 or self._lanes[0].batched:
            return None
        (lane,) = self._lanes
        row = self._rows.get(lane.rows[0])
        if row is None or not self._prefixes.leaves_room(self._claimed_tokens):
            return None
        guesses = row.guess_on(self._trim_limit, drafter)
        if not guesses:
            return None
        self._lanes = [lane._replace(flying=lane.flying + 1)]
        row.feed_on(guesses)
        step = Step(lane.handle, lane.rows, guesses[:1], guesses[1:])
        self._note_went(step, StepPlace.BEHIND_GUESSES)
        return step

    def _note_went(self, step: Step, place: StepPlace) -> None:
        if self._one_drafter:
            is_alone = len(self._rows) == 1 and not self._chunks
            self._one_drafter.went(1 + len(step.drafts), place if is_alone else StepPlace.AMONG_OTHERS)

    def _note_came(self, *, counts: bool) -> None:
        if self._one_drafter:
            self._one_drafter.came(counts=counts and self._drafter is not None)

    @property
    def _drafter(self) -> Drafter | None:
        """It guesses for one user only: where there are more, they keep the stages busy."""
        return self._one_drafter if len(self._rows) == 1 else None

    def _is_under_way(self, lane: Lane) -> bool:
        """Whether a step of it is on the ring whose tokens count."""
        row = None if lane.batched else self._rows.get(lane.rows[0])
        return lane.flying > (row.void if row else 0)

    def _leave(self) -> None:
        """Guesses that were wrong are taken off; then rows that have ended leave lanes that are not under way."""
        for lane in self._lanes:
            row = self._rows.get(lane.rows[0]) or self._leaving[lane.rows[0]]
            if not (self._is_under_way(lane) or lane.batched or row.is_lost) and (excess := row.trim()):
                self._ops.append(Trim(lane.handle, excess))
        batched = {name for lane in (*self._lanes, *self._shared) if lane.batched for name in lane.rows}
        whole = {name: row for name, row in self._leaving.items() if not row.is_lost}
        # one of a batch that is too short to be of use need not be taken out of it
        kept = {name for name, row in whole.items() if row.position >= LEAST_REUSED or name not in batched}
        ops, lanes, apart = leave((*self._lanes, *self._shared), self._leaving, kept, self._handles)
        self._ops += ops
        self._drop({lane.handle for lane in lanes if not lane.rows} - set(apart.values()))
        shared = {lane.handle for lane in self._shared}
        self._lanes = [lane for lane in lanes if lane.rows and lane.handle not in shared]
        self._shared = [lane for lane in lanes if lane.rows and lane.handle in shared]
        held, leaving = {row for lane in self._lanes for row in lane.rows}, self._leaving
        self._leaving = {name: row for name, row in leaving.items() if name in held}
        self._has_lost |= any(row.is_lost for name, row in leaving.items() if name not in held)
        for name, handle in apart.items():
            self._park(leaving[name], handle)

    def _land(self, handle: int) -> None:
        self._lanes = [lane._replace(flying=lane.flying - 1) if lane.handle == handle else lane for lane in self._lanes]

    def _end(self, request_id: str, reason: FinishReason) -> EndedRow:
        row = self._rows.pop(request_id)
        self._owed.discard(request_id)
        if row.is_in_lane or any(request_id in lane.rows for lane in self._shared):
            self._leaving[request_id] = row
        elif row.is_lost:
            self._drop({row.handle})
        else:
            self._park(row, row.handle)
        return EndedRow(request_id, reason, row.reused, row.drafted, row.accepted)

    def _park(self, row: Row, handle: int) -> None:
        self._ops += self._prefixes.park(handle, row.held, self._claimed_tokens)

    def _drop(self, handles: Collection[int]) -> None:
        """With the next composition, unless that does it already."""
        self._ops += [drop for drop in map(Drop, sorted(handles)) if drop not in self._ops]

    @property
    def _reserved_tokens(self) -> int:
        return reserved_tokens((*self._rows.values(), *self._leaving.values()))

    @property
    def _claimed_tokens(self) -> int:
        lanes = (*self._lanes, *self._shared)
        return claimed_tokens({**self._rows, **self._leaving}, lanes, self.chunk, self._draft)


def _turn(request: Request) -> float:
    """Whose turn comes first to be admitted and read, before those of which nothing is written: the least is left."""
    return inf if request.left is None else request.left
