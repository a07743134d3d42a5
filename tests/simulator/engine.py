"""The head of `tests.support.simulated_head`, which reports as `core.worker.head` does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from core.engine.requests import Request
from core.engine.ring_work import Chunk, Work
from core.engine.steps import TRIES
from core.errors import CachesLost, LinkError, LinkLost
from core.worker.answer_row import untouched
from core.worker.messages import AnswerDone, Load, Prefilled, Report, Token
from core.worker.mirroring import Mirroring
from tests.simulator.mirrors import SpanPipeline, answer_of
from tests.support import simulated
from tests.support.simulated import Held, Span
from tests.support.simulated_head import Head


class Engine(Head):
    """A head that reports as `core.worker.head` does."""

    def __init__(self, load: Load, report: Callable[[Report], None]) -> None:
        plan = load.plan
        draft, trim_limit = (0, 0) if simulated.STATES else (2, None)
        super().__init__(
            plan.layers, rows=plan.rows, chunk=3, tries=TRIES, try_s=load.try_s, draft=draft, trim_limit=trim_limit
        )
        self._report, self._told = report, dict[str, int]()
        self._asked: dict[str, Request] = {}
        self.problem = LinkLost("")
        self._now = 0.0
        pipeline: Any = SpanPipeline(plan.layers, lambda span: self.ring.put(span, self._now))
        self.mirroring = Mirroring(plan, pipeline, self.scheduler, report, self._admit)
        self.came: Callable[[Work], None] = lambda _: None  # called with the work that every stage has done

    def submit(self, request: Request, *, may_draft: bool = True) -> bool:
        assert not self.scheduler.alive(request.request_id), "an answer runs twice"
        self._told[request.request_id], self._asked[request.request_id] = len(request.written), request
        if request.ended or not self.mirroring.begin(request):
            self._admit(request)
        return True

    def cancel(self, request_id: str) -> None:
        super().cancel(request_id)
        if request := self.mirroring.restoring.cancel(request_id):
            self._report(untouched(request, "cancelled"))

    def turn(self, now: float) -> Any:
        self._now = now
        work = super().turn(now)
        return self.mirroring.put() or work

    def span_came(self, span: Span, values: Sequence[Held]) -> None:
        self.mirroring.handle_answer(span.asked, answer_of(span, values))

    def collect(self, now: float, fails: bool = False) -> None:
        work = self.ring.links[0][0].work
        super().collect(now, fails)
        if isinstance(work, Chunk):
            for name, done in zip(work.requests, work.read, strict=True):
                if self.scheduler.alive(name):
                    self._report(Prefilled(request_id=name, done=done, total=len(self._asked[name].prefix) - 1))
        if not isinstance(work, Span):
            self.came(work)

    def lose_all(self, problem: LinkError | CachesLost) -> None:
        """Lose all running work for good."""
        self.problem = problem  # type: ignore[assignment]
        for request in self.mirroring.give_up():
            self._report(untouched(request, "error", problem.problem))
        self.gone()

    def _admit(self, request: Request) -> None:
        super().submit(request)

    def _tokens(self, step: Any, values: Any, now: float) -> None:
        super()._tokens(step, values, now)
        for name in step.requests:
            self._tell(name)

    def _tell(self, name: str) -> None:
        for token in self.answers[name][self._told[name] :]:
            self._report(Token(request_id=name, index=self._told[name], token=token))
            self._told[name] += 1

    def _end(self, request_id: str, reason: str) -> None:
        super()._end(request_id, reason)
        self._tell(request_id)
        lost = self.problem.problem if reason == "lost" else None
        self._report(
            AnswerDone(
                request_id=request_id,
                finish_reason="error" if lost else reason,  # type: ignore[arg-type]
                prompt_tokens=len(self.prompts[request_id]),
                tokens=self._told[request_id],
                problem=lost,
            )
        )
