"""A head that runs the scheduler over a simulated ring, watches its rules, and keeps the answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from core.engine.drafting import Drafter
from core.engine.lanes import named
from core.engine.prefix_cache import CachedPrefix
from core.engine.requests import Request
from core.engine.ring_work import Chunk, Compose, Op, Restore, Step, Trim, Work
from core.engine.scheduler import EndedRow, Scheduler
from core.errors import Busy
from core.sampling_options import Sampling
from core.settings import ROW_GROWTH
from tests.support.simulated import VOCABULARY, CannotCompute, Ring, Span, Stage, caches_of, drawn

ENDLESS = 1 << 30


class Watch:
    """Checks that the head's work on the ring obeys the rules."""

    def __init__(self, scheduler: Scheduler, rows: int, context: int, lanes: int) -> None:
        self._scheduler, self._rows, self._context, self._lanes = scheduler, rows, context, lanes
        self.flying: Counter[int] = Counter()
        self.chunks = 0
        self.decoding: dict[str, int] = {}  # chunks since the last step
        self._short = 0

    def put(self, work: Work) -> None:
        if isinstance(work, Chunk):
            self._chunk()
        elif isinstance(work, Step):
            self._step(work)
        else:
            assert work.ops
            others = [op for op in work.ops if not isinstance(op, Trim)]  # trims undo wrong guesses
            assert not (+self.flying).keys() & named(others), "a lane under way was touched"

    def held(self, head: Stage) -> None:
        """Check that all held tokens have room: running and parked."""
        held = [row.length for rows in head.handles.values() for row in rows]
        padded = sum(len(rows) * max(row.length for row in rows) for rows in head.handles.values() if rows)
        assert len(held) == 1 or padded <= self._context, "too many tokens are held"
        assert len(self._scheduler.parked) <= self._rows + 1
        assert len(held) <= 2 * self._rows + 1

    def back(self, work: Work) -> None:
        if isinstance(work, Chunk):
            self.chunks -= 1
        elif isinstance(work, Step):
            self.flying[work.handle] -= 1
            self._short += 1

    def over(self, request_id: str) -> None:
        self.decoding.pop(request_id, None)
        self._short = 0

    def waits(self) -> None:
        """Note that the scheduler has nothing to put; a missing lane returns after a round of the others."""
        assert self._scheduler.in_flight or self.chunks or not self._scheduler.running
        if len(self._scheduler.in_flight) >= min(self._lanes, len(self.decoding)):
            self._short = 0
        assert self._short <= 2 * self._lanes, "too few lanes are in flight"

    def _chunk(self) -> None:
        self.chunks += 1
        assert self.chunks <= self._scheduler.window
        for row in self.decoding:
            self.decoding[row] += 1
            assert self.decoding[row] == 1, "a row waits for two chunks"

    def _step(self, work: Step) -> None:
        assert self.flying[work.handle] == 0 or len(work.requests) == 1
        assert all(map(self._scheduler.alive, work.requests)), "a row that is over still runs"
        self.flying[work.handle] += 1
        if not self.decoding.keys() >= set(work.requests):
            self._short = 0
        self.decoding.update(dict.fromkeys(work.requests, 0))


class Head:
    """Runs requests over a ring, and keeps their `answers` and finish reasons."""

    def __init__(
        self,
        stages: int,
        *,
        rows: int = 8,
        context: int = ENDLESS,
        chunk: int = 4,
        window: int = 2,
        batched: bool = True,
        lanes: int | None = None,
        queue: int = 8,
        tries: int = ENDLESS,
        try_s: float = ENDLESS,
        draft: int = 0,
        trim_limit: int | None = None,
        goes_ahead: bool = False,
        drafter: Drafter | None = None,
        growth: int = ROW_GROWTH,
    ) -> None:
        self._goes_ahead, self._drafter = goes_ahead, drafter
        self.scheduler = Scheduler(
            stages=stages,
            rows=rows,
            context=context,
            chunk=chunk,
            window=window,
            batched=batched,
            queue=queue,
            lanes=lanes,
            draft=draft,
            trim_limit=trim_limit,
            drafter=drafter,
            growth=growth,
        )
        self.ring = Ring(stages, tries, try_s, trim_limit)
        self.watch = Watch(self.scheduler, rows, context, (lanes or stages) if batched else rows)
        self.prompts: dict[str, list[int]] = {}
        self.answers: dict[str, list[int]] = {}
        self.samplings: dict[str, Sampling] = {}
        self.reasons: dict[str, str] = {}
        self.ended: dict[str, EndedRow] = {}
        self.kinds: Counter[str] = Counter()

    def submit(self, request: Request, *, may_draft: bool = True) -> bool:
        """Submit a request; an ended one may come again, with its written tokens."""
        try:
            if not request.ended:
                self.scheduler.submit(request, may_draft=may_draft)
        except Busy:
            return False
        self.reasons.pop(request.request_id, None)
        self.prompts[request.request_id] = request.tokens
        self.answers[request.request_id] = list(request.written)
        self.samplings[request.request_id] = request.sampling
        if request.ended:
            self._end(request.request_id, request.ended)
        return True

    def cancel(self, request_id: str) -> None:
        if ended := self.scheduler.cancel(request_id):
            self._ended(ended)

    def hold(self, tokens: Sequence[int]) -> CachedPrefix | None:
        """Send a row from elsewhere to every stage, if there is room; it settles on arrival."""
        try:
            parked = self.scheduler.hold(tokens)
        except Busy:
            return None
        for stage, cache in zip(self.ring.stages, caches_of(tokens, len(self.ring.stages)), strict=True):
            stage.arriving[parked.handle] = cache
        return parked

    def turn(self, now: float) -> Work | None:
        """Put one piece of work on the ring, if there is any."""
        work = self.scheduler.next()
        for rest in self.scheduler.take_displaced():
            assert rest.written == self.answers[rest.request_id], "it goes on elsewhere"
            self.kinds["displaced"] += 1
            self.watch.over(rest.request_id)
        if work is None:
            self.watch.waits()
            return None
        self.kinds.update(type(part).__name__ for part in (work.ops if isinstance(work, Compose) else [work]))
        self.kinds["shared"] += isinstance(work, Chunk) and len(work.requests) > 1
        self.watch.put(work)
        if isinstance(work, Step):
            self._check_lengths(work)
            self.kinds["draft"] += len(work.drafts)
            self.kinds["window"] += self.watch.flying[work.handle] > 1
        self._put(work, now)
        return work

    def _put(self, work: Work, now: float) -> None:
        try:
            self.ring.put(work, now)
        except CannotCompute:
            self._failed(work)
        else:
            self.watch.held(self.ring.stages[0])

    def round(self) -> list[Work]:
        """Put everything possible on the ring, then carry all of it round once."""
        put = []
        while work := self.turn(0.0):
            put.append(work)
            assert len(put) < 1000, "it puts more and more"
        self.carry()
        return put

    def carry(self) -> None:
        """Carry everything on the ring back to the head."""
        for link in range(1, len(self.ring.links)):
            while self.ring.links[link]:
                self.ring.deliver(link)
        while self.ring.links[0]:
            self.collect(0.0)

    def finish(self) -> list[Work]:
        """Run rounds until nothing is left."""
        put: list[Work] = []
        while not self.scheduler.idle:
            more = self.round()
            assert more, "it waits for nothing"
            put += more
        return put

    def collect(self, now: float, fails: bool = False) -> None:
        """Collect the oldest reply on the link to the head; `fails`: the head can't choose the tokens of a step."""
        frame = self.ring.links[0].popleft()
        sent = self.ring.outstanding.answered(frame.step, now)
        if sent is None:
            return
        if isinstance(sent.work, Span):
            self.span_came(sent.work, frame.values or [])
            return
        if frame.values is None or (fails and isinstance(sent.work, Step)):
            self._failed(sent.work)
            return
        self.watch.back(sent.work)
        if isinstance(sent.work, Step):
            self._tokens(sent.work, frame.values, now)
            return
        for progress in self.scheduler.acked(sent.work):
            assert 0 < progress.done < progress.total
        if isinstance(sent.work, Compose):
            for op in sent.work.ops:
                if isinstance(op, Restore) and op.handle in self.ring.stages[0].arriving:
                    self.scheduler.settle(op.handle)

    def span_came(self, span: Span, values: Sequence[Any]) -> None:
        """Receive a span; subclasses that mirror override this."""
        raise AssertionError

    def gone(self) -> None:
        """Replace the ring by another one, for good."""
        for request_id in self.scheduler.drop_all():
            self._end(request_id, "lost")
        self.ring.renew()
        self.watch.flying.clear()
        self.watch.chunks = 0

    def check_parked(self) -> None:
        """Check that every stage holds exactly the parked rows."""
        parked = self.scheduler.parked
        for stage in self.ring.stages:
            assert stage.handles.keys() == {row.handle for row in parked}, "a handle is left, or lost"
            assert not stage.broken, "what failed is left"
            assert not stage.batched & stage.handles.keys()
        for row in parked:
            for stage, cache in zip(self.ring.stages, caches_of(row.tokens, len(self.ring.stages)), strict=True):
                assert stage.handles[row.handle] == [cache], "it holds other tokens than it is parked under"

    def _check_lengths(self, step: Step, ahead: int = 0) -> None:
        held = self.ring.stages[0].handles.get(step.handle, ())
        for name, row in zip(step.requests, held, strict=True):
            known = len(self.prompts[name]) + len(self.answers[name])
            is_window = self._drafter is not None and row.length >= known
            assert is_window or row.length + 1 == known + ahead, "something else is held"

    def _go_ahead(self, step: Step, tokens: Sequence[Sequence[int]], now: float) -> None:
        """Send the step after `step` before the scheduler knows the tokens it feeds."""
        foreseen = () if step.drafts else self.scheduler.foresees(step.handle)
        ahead = self.scheduler.ahead(step)
        assert foreseen == (ahead.requests if ahead else ())
        if ahead:
            self.kinds["ahead"] += 1
            self.watch.put(ahead)
            self._check_lengths(ahead, 1)
            self._put(replace(ahead, tokens=tuple(token for (token,) in tokens)), now)

    def _tokens(self, step: Step, values: Sequence[int], now: float) -> None:
        if step.drafts:
            tokens = [self._verified(step.requests[0], (*step.tokens, *step.drafts), values)]
        else:
            rows = zip(step.requests, step.tokens, values, strict=True)
            tokens = [self._verified(name, [token], [value]) for name, token, value in rows]
        if self._goes_ahead and self.scheduler.counting(step):
            self._go_ahead(step, tokens, now)
        counting = self.scheduler.counting(step)
        self.kinds["void"] += not counting and self.scheduler.alive(step.requests[0])
        taken, over = self.scheduler.stepped(step, tokens)
        for at, (name, count, row) in enumerate(zip(step.requests, taken, tokens, strict=True)):
            assert bool(count) == (at in counting)
            self.answers[name] += row[:count]
        for ended in over:
            self._ended(ended)

    def _verified(self, name: str, fed: Sequence[int], values: Sequence[int]) -> list[int]:
        """The tokens after one token and its drafts, up to the first that a draft got wrong."""
        tokens: list[int] = []
        for number, (token, value) in enumerate(zip(fed, values, strict=True), 1):
            tokens.append(drawn(self.samplings[name], len(self.answers[name]) + len(tokens), token, value))
            if fed[number : number + 1] != (tokens[-1],):
                break
        return tokens

    def _ended(self, ended: EndedRow) -> None:
        self.ended[ended.request_id] = ended
        self._end(ended.request_id, ended.reason)

    def _failed(self, work: Work) -> None:
        self.watch.back(work)
        for request_id in self.scheduler.failed(work):
            self._end(request_id, "lost")

    def _end(self, request_id: str, reason: str) -> None:
        assert request_id not in self.reasons
        self.reasons[request_id] = reason
        self.watch.over(request_id)


def ask(name: str, prompt: int = 1, tokens: int = 100, **more: Any) -> Request:
    """A request of `tokens` tokens, named by a letter."""
    first = ord(name[0])
    return Request(
        request_id=name,
        tokens=[(first + number) % VOCABULARY for number in range(prompt)],
        max_tokens=tokens,
        **more,
    )


def running(stages: int, names: str, **more: Any) -> Head:
    """A head with requests of one-token prompts that came one after the other and now decode."""
    head = Head(stages, **more)
    for name in names:
        head.submit(ask(name))
        head.round()
    return head


def ops_of(works: Sequence[Work]) -> list[Op]:
    """All operations of the compositions among `works`."""
    return [op for work in works if isinstance(work, Compose) for op in work.ops]


def steps_of(works: Sequence[Work]) -> list[Step]:
    """The steps among `works`."""
    return [work for work in works if isinstance(work, Step)]
