"""A ring without a model, for the tests of the engine.

Its stages enforce the rules of `core/engine/ring_work.py`, and its links keep frames until a test delivers or loses
them. A stage passes on, for each token, a hash of all tokens that its row got before. So a token of an answer depends
only on the row's content on every stage. Many answers repeat themselves, so guesses are sometimes right.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, NamedTuple

from core.engine.lanes import named
from core.engine.requests import Request
from core.engine.ring_work import (
    Chunk,
    Compose,
    Copy,
    Drop,
    Extend,
    Extract,
    Keep,
    Merge,
    New,
    Op,
    Restore,
    Step,
    Trim,
    Work,
)
from core.engine.steps import Outstanding, Replies
from core.sampling_options import Sampling

VOCABULARY = 40
# stages with states as caches: they keep no single tokens, only the state after the last one
STATES: frozenset[int] = frozenset()


class Cache(NamedTuple):
    """A row on a stage: its number of tokens, a hash of them in order, and the row before the last one."""

    length: int = 0
    digest: int = 0
    before: Cache | None = None

    def fed(self, stage: int, value: int) -> Cache:
        return Cache(self.length + 1, hash((stage, self.digest, value)), self)

    def digests(self, start: int, stop: int) -> tuple[int, ...]:
        """Digests of the tokens [start, stop): a cache that starts at `start` and takes them equals this one."""
        cache, held = self.trimmed(self.length - stop), []
        while cache.length > start:
            held.append(cache.digest)
            assert cache.before is not None
            cache = cache.before
        return tuple(reversed(held))

    def trimmed(self, count: int) -> Cache:
        cache = self
        for _ in range(count):
            assert cache.before is not None
            cache = cache.before
        return cache


def caches_of(tokens: Iterable[int], stages: int) -> list[Cache]:
    """The cache of each stage for a row that got `tokens`."""
    caches = [Cache()] * stages
    for value in tokens:
        for stage in range(stages):
            caches[stage] = caches[stage].fed(stage, value)
            value = caches[stage].digest
    return caches


def chosen(token: int, value: int) -> int:
    """The token after `token`, if the last stage passed on `value`."""
    return (token + 1) % 4 if value % 4 else value // 4 % VOCABULARY


def drawn(sampling: Sampling, number: int, token: int, value: int) -> int:
    """Token `number` of an answer, after `token`, as `sampling` chooses it."""
    if sampling.temperature == 0:
        return chosen(token, value)
    return hash((sampling.seed, number, value)) % VOCABULARY


class Held(NamedTuple):
    """Part of a row on a stage: a number per token, or the length and digest of a state; empty at first."""

    stage: int
    is_state: bool
    numbers: tuple[int, ...] = ()


class Span(NamedTuple):
    """A mirror's request to every stage, for row `row` of a handle.

    A stage adds its numbers of the tokens [start, stop), or takes them from `held`. If start equals stop, it is about
    states.
    """

    handle: int
    row: int
    start: int
    stop: int
    is_cut: bool
    asked: Any
    held: tuple[Held, ...]


class CannotCompute(Exception):
    """A stage ran out of memory, or could not compute an earlier request."""


class Stage:
    """One stage. A broken rule is an AssertionError.

    After a failure the touched handles are broken until they are dropped: all work on them fails too.
    """

    def __init__(self, index: int, trim_limit: int | None = None) -> None:
        self.index, self.trim_limit = index, trim_limit
        self.handles: dict[int, list[Cache]] = {}
        self.batched: set[int] = set()
        self.broken: set[int] = set()
        self.arriving: dict[int, Cache] = {}  # rows from elsewhere, by handle
        self.awaited: dict[int, tuple[Cache, int]] = {}  # the arrived part, and the full number of tokens
        self._newest = 0
        self.fails = False

    def span(self, work: Span, values: Sequence[Held]) -> list[Held]:
        """Cut or paste a span; returns the values for the next stage."""
        if work.handle in self.broken:
            return [*values]
        return self._cut(work, values) if work.is_cut else self._paste(work, values)

    def _cut(self, work: Span, values: Sequence[Held]) -> list[Held]:
        row, is_state = self.handles[work.handle][work.row], self.index in STATES
        assert row.length >= work.stop, "more is cut out than there is"
        if work.start < work.stop:
            return [*values, Held(self.index, is_state, () if is_state else row.digests(work.start, work.stop))]
        assert row.length == work.stop, "the states are not of one point"
        wanted = Held(self.index, is_state)
        return [each._replace(numbers=(row.length, row.digest)) if each == wanted else each for each in values]

    def _paste(self, work: Span, values: Sequence[Held]) -> list[Held]:
        for own in (each for each in values if each.stage == self.index):
            cache, tokens = self.awaited.pop(work.handle)
            if own.is_state:
                length, digest = own.numbers
                cache = Cache(length, digest)
                assert length == tokens, "a state of another point"
            else:
                assert (cache.length, len(own.numbers)) == (work.start, work.stop - work.start), "in the wrong place"
                for digest in own.numbers:
                    cache = Cache(cache.length + 1, digest, cache)
            if cache.length == tokens:
                self.handles[work.handle] = [cache]
            else:
                self.awaited[work.handle] = cache, tokens
        return [each for each in values if each.stage != self.index]

    def run(self, work: Work, values: Sequence[int]) -> list[int]:
        """Run work on `values`: a prompt's, one for each row, or one row's and its drafts. Returns the next stage's
        values.

        Raises CannotCompute.
        """
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
        rows, size = self.handles[work.handle], len(work.tokens[0])
        assert work.handle in self.batched or len(rows) == 1
        assert {len(tokens) for tokens in work.tokens} == {size} != {0}
        assert tuple(row.length for row in rows) == work.positions
        assert len(rows) == len(work.tokens) == len(work.requests) == len(set(work.requests))
        out = []
        for at, row in enumerate(rows):
            rows[at], more = self._fed(row, values[at * size : (at + 1) * size])
            out += more
        return out

    def _step(self, work: Step, values: Sequence[int]) -> list[int]:
        rows = self.handles[work.handle]
        assert len(rows) == len(work.tokens) == len(work.requests) == len(set(work.requests))
        assert work.handle in self.batched or len(rows) == 1
        if work.drafts:
            assert work.handle not in self.batched
            rows[0], out = self._fed(rows[0], values)
            return out
        fed = self.handles[work.handle] = [row.fed(self.index, v) for row, v in zip(rows, values, strict=True)]
        return [row.digest for row in fed]

    def _fed(self, row: Cache, values: Sequence[int]) -> tuple[Cache, list[int]]:
        out = []
        for value in values:
            row = row.fed(self.index, value)
            out.append(row.digest)
        return row, out

    def _compose(self, ops: Sequence[Op]) -> None:
        for op in ops:
            if isinstance(op, Drop):
                self.handles.pop(op.handle, None)
                self.awaited.pop(op.handle, None)
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
            case Restore(handle, tokens) if handle not in self.arriving:
                self._begin(handle)
                self.awaited[handle] = Cache(), tokens
            case Restore(handle, tokens):
                assert self.arriving[handle].length == tokens
                self._make(handle, [self.arriving[handle]], batched=False)
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
            case Extract(into, of, row):
                assert of in self.batched
                self._make(into, [self.handles[of][row]], batched=False)
            case Trim(handle, count):
                assert count > 0
                assert handle not in self.batched
                (held,) = self.handles[handle]
                assert self.trim_limit is None or held.length < self.trim_limit
                self.handles[handle] = [held.trimmed(count)]
            case _:
                raise AssertionError(op)

    def _make(self, handle: int, rows: list[Cache], *, batched: bool) -> None:
        assert rows
        self._begin(handle)
        self.handles[handle] = rows
        if batched:
            self.batched.add(handle)

    def _begin(self, handle: int) -> None:
        assert handle > self._newest, "a handle is never used again"
        self._newest = handle


class Frame(NamedTuple):
    """`values` are None if an earlier stage failed."""

    step: int
    base: int
    work: Work | Span
    values: list[Any] | None


class Sent(NamedTuple):
    """Work that the head has sent, and its values."""

    work: Work | Span
    values: list[Any]


class Ring:
    """Stages in a ring, including the head's, with links that keep frames until they are delivered."""

    def __init__(self, size: int, tries: int, try_s: float, trim_limit: int | None = None) -> None:
        self.stages = [Stage(index, trim_limit) for index in range(size)]
        self.links: list[deque[Frame]] = [deque() for _ in range(size)]  # link n leads to stage n
        self.outstanding: Outstanding[Sent] = Outstanding(tries, try_s)
        self._replies: list[Replies[list[Any] | None]] = [Replies() for _ in range(size)]
        self.repeats = 0

    def put(self, work: Work | Span, now: float) -> None:
        """Run the head's own layers, then send. Raises CannotCompute, and sends nothing then."""
        sent = Sent(work, _done(self.stages[0], work, work.held if isinstance(work, Span) else tokens_in(work)))
        step = self.outstanding.put(sent, now)
        self.send([(step, sent)])

    def send(self, steps: list[tuple[int, Sent]]) -> None:
        """Send to the second stage."""
        base = self.outstanding.base
        self.links[1 % len(self.links)].extend(Frame(step, base, sent.work, sent.values) for step, sent in steps)

    def deliver(self, link: int) -> None:
        """Process the oldest frame of a link that does not lead to the head, and pass it on. Raises ProtocolError."""
        frame = self.links[link].popleft()
        replies = self._replies[link]
        if replies.judge(frame.step, frame.base) == "repeat":
            self.repeats += 1
            values = replies.reply(frame.step)
        else:
            try:
                values = None if frame.values is None else _done(self.stages[link], frame.work, frame.values)
            except CannotCompute:
                values = None
            replies.keep(frame.step, values, frame.base)
        self.links[(link + 1) % len(self.links)].append(frame._replace(values=values))

    def lose(self) -> None:
        """Lose everything on the links."""
        for link in self.links:
            link.clear()

    def relink(self, now: float) -> None:
        """Make new links, and send all outstanding work once more."""
        self.lose()
        self.send(self.outstanding.resend(now))

    def renew(self) -> None:
        """Start the workers again, with no state."""
        self.lose()
        self.outstanding.clear()
        self.stages = [Stage(stage.index, stage.trim_limit) for stage in self.stages]
        for replies in self._replies:
            replies.restart(self.outstanding.base)


def _done(stage: Stage, work: Work | Span, values: Sequence[Any]) -> list[Any]:
    return stage.span(work, values) if isinstance(work, Span) else stage.run(work, values)


def tokens_in(work: Work) -> Sequence[int]:
    """The tokens that the first stage gets."""
    match work:
        case Compose():
            return ()
        case Chunk():
            return [token for row in work.tokens for token in row]
        case _:
            return (*work.tokens, *work.drafts)


class Foreseer:
    """A draft for a ring of `stages` stages; a fraction `rate` of its guesses is right."""

    def __init__(self, stages: int, rate: float, random: Random) -> None:
        self._stages, self._rate, self._random = stages, rate, random
        self._tokens: Sequence[int] = ()

    def read(self, tokens: Sequence[int]) -> None:
        self._tokens = list(tokens)

    def propose(self, count: int) -> tuple[int, ...]:
        guesses: list[int] = []
        for _ in range(count):
            tokens = (*self._tokens, *guesses)
            right = chosen(tokens[-1], caches_of(tokens, self._stages)[-1].digest)
            guesses.append(right if self._random.random() < self._rate else self._random.randrange(VOCABULARY))
        return tuple(guesses)


def alone(request: Request, stages: int) -> list[int]:
    """The answer that `request` gets alone, without reuse and without drafts."""
    caches = caches_of(request.tokens, stages)
    answer: list[int] = []
    token = request.tokens[-1]
    while True:
        token = drawn(request.sampling, len(answer), token, caches[-1].digest)
        answer.append(token)
        if len(answer) == request.max_tokens or (token in request.eos and len(answer) > request.min_tokens):
            return answer
        value = token
        for stage in range(stages):
            caches[stage] = caches[stage].fed(stage, value)
            value = caches[stage].digest
