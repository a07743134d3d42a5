"""A ring without a model, for the tests of the engine: stages that hold everybody to the rules of
`core/engine/work.py`, and links that keep frames until somebody delivers or loses them.

What a stage passes on for a token is a hash of all that the row gave it before, so a token of an answer depends on what
every stage holds for its row, and on nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from core.engine.lanes import named
from core.engine.requests import Request
from core.engine.steps import Outstanding, Replies
from core.engine.work import Chunk, Compose, Copy, Drop, Extend, Keep, Merge, New, Op, Step, Work

VOCABULARY = 40


class Cache(NamedTuple):
    """What a stage holds of a row: how many tokens it was given, and a hash of them in their order."""

    length: int = 0
    digest: int = 0

    def fed(self, stage: int, value: int) -> Cache:
        return Cache(self.length + 1, hash((stage, self.digest, value)))


class CannotCompute(Exception):
    """A stage ran out of memory, or was asked for what it could not compute before."""


class Stage:
    """One stage. A broken rule is an AssertionError. After a failure the handles it touched stay broken until they are
    dropped: whatever touches them fails too.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self.handles: dict[int, list[Cache]] = {}
        self.batched: set[int] = set()
        self.broken: set[int] = set()
        self._newest = 0
        self.fails = False

    def run(self, work: Work, values: Sequence[int]) -> list[int]:
        """What goes on to the next stage for `values`, a prompt's or one of each row. Raises CannotCompute."""
        fails, self.fails = self.fails, False
        touched = named(work.ops) if isinstance(work, Compose) else {work.handle}
        try:
            if isinstance(work, Compose):
                self._compose(work.ops[: len(work.ops) // 2] if fails else work.ops)
            elif fails or work.handle in self.broken:
                raise CannotCompute
            if fails:
                raise CannotCompute
        except CannotCompute:
            self.broken |= touched
            raise
        if isinstance(work, Chunk):
            return self._chunk(work, values)
        return self._step(work, values) if isinstance(work, Step) else []

    def _chunk(self, work: Chunk, values: Sequence[int]) -> list[int]:
        assert work.handle not in self.batched
        (row,) = self.handles[work.handle]
        assert row.length == work.position
        assert len(values) == len(work.tokens) > 0
        out = []
        for value in values:
            row = row.fed(self.index, value)
            out.append(row.digest)
        self.handles[work.handle] = [row]
        return out

    def _step(self, work: Step, values: Sequence[int]) -> list[int]:
        rows = self.handles[work.handle]
        assert len(rows) == len(values) == len(work.requests) == len(set(work.requests))
        assert work.handle in self.batched or len(rows) == 1
        fed = self.handles[work.handle] = [row.fed(self.index, v) for row, v in zip(rows, values, strict=True)]
        return [row.digest for row in fed]

    def _compose(self, ops: Sequence[Op]) -> None:
        for op in ops:
            if isinstance(op, Drop):
                self.handles.pop(op.handle, None)
                self.batched.discard(op.handle)
                self.broken.discard(op.handle)
                continue
            if self.broken & named([op]):
                raise CannotCompute
            self._change(op)

    def _change(self, op: Op) -> None:
        match op:
            case New(handle):
                self._make(handle, [Cache()], batched=False)
            case Merge(into, rows):
                assert not self.batched & set(rows)
                self._make(into, [self.handles.pop(row)[0] for row in rows], batched=True)
            case Extend(into, more):
                assert {into, more} <= self.batched
                self.batched.discard(more)
                self.handles[into] += self.handles.pop(more)
            case Keep(handle, rows):
                assert handle in self.batched
                assert rows
                assert len(set(rows)) == len(rows)
                self.handles[handle] = [self.handles[handle][row] for row in rows]
            case Copy(into, of):
                self._make(into, list(self.handles[of]), batched=of in self.batched)
            case _:
                raise AssertionError(op)

    def _make(self, handle: int, rows: list[Cache], *, batched: bool) -> None:
        assert rows
        assert handle > self._newest, "a handle is never used again"
        self._newest = handle
        self.handles[handle] = rows
        if batched:
            self.batched.add(handle)


class Frame(NamedTuple):
    """`values` are None where a stage before could not do it."""

    step: int
    base: int
    work: Work
    values: list[int] | None


class Sent(NamedTuple):
    """What the head has out."""

    work: Work
    values: list[int]


class Ring:
    """Stages in a ring, the head's among them, with links that hold frames until they are delivered."""

    def __init__(self, size: int, tries: int, try_s: float) -> None:
        self.stages = [Stage(index) for index in range(size)]
        self.links: list[deque[Frame]] = [deque() for _ in range(size)]  # link n leads to stage n
        self.outstanding: Outstanding[Sent] = Outstanding(tries, try_s)
        self._replies: list[Replies[list[int] | None]] = [Replies() for _ in range(size)]
        self.repeats = 0

    def put(self, work: Work, now: float) -> None:
        """The head's own layers, then out. Raises CannotCompute; the others hear nothing of it then."""
        tokens = () if isinstance(work, Compose) else work.tokens
        sent = Sent(work, self.stages[0].run(work, tokens))
        step = self.outstanding.put(sent, now)
        self.send([(step, sent)])

    def send(self, steps: list[tuple[int, Sent]]) -> None:
        """On to the second stage."""
        base = self.outstanding.base
        self.links[1 % len(self.links)].extend(Frame(step, base, sent.work, sent.values) for step, sent in steps)

    def deliver(self, link: int) -> None:
        """The oldest frame of a link that does not lead to the head is done, and goes on. Raises ProtocolError."""
        frame = self.links[link].popleft()
        replies = self._replies[link]
        if replies.judge(frame.step, frame.base) == "repeat":
            self.repeats += 1
            values = replies.reply(frame.step)
        else:
            try:
                values = None if frame.values is None else self.stages[link].run(frame.work, frame.values)
            except CannotCompute:
                values = None
            replies.keep(frame.step, values, frame.base)
        self.links[(link + 1) % len(self.links)].append(frame._replace(values=values))

    def lose(self) -> None:
        """All that is on the links is gone."""
        for link in self.links:
            link.clear()

    def relink(self, now: float) -> None:
        """New links, and all that is out once more."""
        self.lose()
        self.send(self.outstanding.resend(now))

    def renew(self) -> None:
        """The workers were started anew, and know nothing."""
        self.lose()
        self.outstanding.clear()
        self.stages = [Stage(stage.index) for stage in self.stages]
        for replies in self._replies:
            replies.restart(self.outstanding.base)


def alone(request: Request, stages: int) -> list[int]:
    """The answer that `request` gets where nothing else runs."""
    caches = [Cache()] * stages
    answer: list[int] = []
    feed = list(request.tokens)
    while True:
        for value in feed:
            for stage in range(stages):
                caches[stage] = caches[stage].fed(stage, value)
                value = caches[stage].digest
        token = caches[-1].digest % VOCABULARY
        answer.append(token)
        if len(answer) == request.max_tokens or (token in request.eos and len(answer) > request.min_tokens):
            return answer
        feed = [token]
