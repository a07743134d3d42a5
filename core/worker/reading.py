"""Prompts that the prefill Mac reads, chunk by chunk: the stages take the KV of each chunk while it reads the next. The
ring then reads the last token.

It reads one prompt at a time, and the ring reads any others. On any failure the ring reads all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from time import monotonic
from typing import Final, NamedTuple

import mlx.core as mx

from core.engine.requests import Request
from core.engine.ring_work import Drop, New
from core.engine.scheduler import Scheduler
from core.errors import LinkError
from core.events import Plan
from core.plan.prefill import is_worth
from core.worker.kv_spans import SPAN_BYTES, STATE, CachePart, KvSpan, SpanVerb, in_parts, is_filled
from core.worker.messages import PrefillBroken, Prefilled, ReadBeside, Report
from core.worker.mirroring import WANTED, CutRequest
from core.worker.pipeline import Pipeline, StepAnswer
from core.worker.restoring import Restoring

# lets the other Mac work on a chunk while the KV of the previous one is in flight
MOST_CHUNKS: Final = 2


class Waited(NamedTuple):
    """The wait of a request for the prefill Mac."""

    tokens: int  # tokens that it read
    since: float  # in seconds of the monotonic clock


class _Prompt:
    """The first `tokens` tokens of a request, which the prefill Mac reads under `handle`. `sent` tokens were sent to
    it; `chunks` chunks of those are still to come back.
    """

    def __init__(self, request: Request, handle: int, tokens: int) -> None:
        self.request, self.handle, self.tokens = request, handle, tokens
        self.sent = self.chunks = 0


class Reading:
    """Sends prompts to the prefill Mac; idle until `link`."""

    def __init__(
        self, plan: Plan, layers: int, scheduler: Scheduler, restoring: Restoring, report: Callable[[Report], None]
    ) -> None:
        """`layers`: how many caches the whole model has."""
        self._prefill, self._chunk, self._caches = plan.prefill, plan.chunk, layers
        self._scheduler, self._restoring, self._report = scheduler, restoring, report
        self._token_bytes = max(1, sum(stage.kv_bytes for stage in plan.stages) // max(1, plan.context))
        self._handles = count(1)
        self._prompt: _Prompt | None = None
        self._waited: dict[str, Waited] = {}  # of requests that wait, or have waited and are about to continue
        self._plan_gen = 0
        self.other: Pipeline | None = None

    @property
    def is_busy(self) -> bool:
        return self.other is not None and not (self._prompt is None and self.other.is_at_rest)

    def link(self, other: Pipeline, plan_gen: int) -> None:
        self.unlink()
        self.other, self._plan_gen = other, plan_gen

    def begin(self, request: Request) -> bool:
        """Have a prompt read while the request waits; False if the ring has to do it."""
        tokens = len(request.prefix) - 1
        if not (self.other and self._prefill) or self._prompt or request.scores_prompt:
            return False
        unread = tokens - self._scheduler.reusable(request)
        if not is_worth(self._prefill, tokens, unread) or not self._restoring.begin(request, tokens, self):
            return False
        self._waited[request.request_id] = Waited(0, monotonic())
        self._prompt = prompt = _Prompt(request, next(self._handles), tokens)
        self._attempt(lambda other: other.compose([New(prompt.handle)]))
        return True

    def turn(self) -> bool:
        return self.is_busy and self._attempt(self._turn)

    def want(self, request_id: str, behind: int) -> None:
        """Do nothing: the prefill Mac sends spans as they come."""

    def ended(self, request_id: str, tokens: int) -> None:
        self._report(ReadBeside(request_id=request_id, tokens=tokens))
        self._waited[request_id] = self._waited[request_id]._replace(tokens=tokens)
        if not tokens:
            self._give_up(request_id)

    def take_waited(self, request_id: str) -> Waited | None:
        return self._waited.pop(request_id, None)

    def stop(self, request_id: str) -> None:
        self._waited.pop(request_id, None)
        self._give_up(request_id)

    def _give_up(self, request_id: str) -> None:
        prompt = self._prompt
        if prompt and prompt.request.request_id == request_id:
            self._prompt = None
            self._attempt(lambda other: other.compose([Drop(prompt.handle)]))

    def give_up(self) -> None:
        self._waited.clear()
        if self._prompt:
            self._give_up(self._prompt.request.request_id)

    def unlink(self) -> None:
        other, self.other = self.other, None
        if other:
            other.close()
        prompt, self._prompt = self._prompt, None
        if prompt:
            self._restoring.fail(prompt.request.request_id)

    def _attempt(self, work: Callable[[Pipeline], object]) -> bool:
        try:
            return bool(self.other and work(self.other))
        except LinkError as error:
            self._report(PrefillBroken(plan_gen=self._plan_gen, problem=error.problem))
            self.unlink()
            return True

    def _turn(self, other: Pipeline) -> bool:
        if answer := other.take():
            self._handle(other, answer)
        elif other.needs_new_keys:
            if not other.is_at_rest:
                return False
            other.renew()
        elif (prompt := self._prompt) and prompt.sent < prompt.tokens and prompt.chunks < MOST_CHUNKS:
            self._send_chunk(other, prompt)
        else:
            other.send_again()
            return False
        return True

    def _send_chunk(self, other: Pipeline, prompt: _Prompt) -> None:
        start, stop = prompt.sent, min(prompt.tokens, prompt.sent + self._chunk)
        prompt.sent, prompt.chunks = stop, prompt.chunks + 1
        name, step = prompt.request.request_id, max(1, SPAN_BYTES // self._token_bytes)
        tokens = mx.array([prompt.request.prefix[start:stop]])
        other.forward(prompt.handle, tokens, quiet=True, request=bytes.fromhex(name))
        for at in range(start, stop, step):
            end = min(at + step, stop)
            self._cut(other, prompt, CutRequest(name, at, end, is_last=end == stop))

    def _cut(self, other: Pipeline, prompt: _Prompt, asked: CutRequest) -> None:
        states: Mapping[int, CachePart] = dict.fromkeys(asked.states, WANTED)
        other.mirror(prompt.handle, KvSpan(SpanVerb.CUT, 0, asked.start, asked.stop, states), asked)

    def _handle(self, other: Pipeline, answer: StepAnswer) -> None:
        prompt, asked = self._prompt, answer.work
        if prompt is None or not isinstance(asked, CutRequest) or asked.request_id != prompt.request.request_id:
            return
        caches = answer.span.caches if answer.span else {}
        wanted = set(asked.states) or set(range(self._caches))
        if caches.keys() != wanted or (asked.states and not is_filled(caches)):
            self._restoring.fail(asked.request_id)  # it failed, or its caches can't be passed on
            return
        states = {} if asked.states else {n: part.first for n, part in caches.items() if part.needs == STATE}
        is_whole = asked.is_last and asked.stop == prompt.tokens and not states
        caches = {n: part for n, part in caches.items() if n not in states}
        span = KvSpan(SpanVerb.PASTE, 0, asked.start, asked.stop, caches)
        self._restoring.add(asked.request_id, span, is_last=is_whole)
        self._report(Prefilled(request_id=asked.request_id, done=asked.stop, total=prompt.tokens + 1))
        if asked.is_last and not asked.states:
            prompt.chunks -= 1
        if is_whole:
            self._give_up(asked.request_id)
        elif states and asked.stop == prompt.tokens:
            parts = in_parts(states, SPAN_BYTES)
            for part in parts:
                self._cut(other, prompt, CutRequest(asked.request_id, asked.stop, asked.stop, part, part is parts[-1]))
