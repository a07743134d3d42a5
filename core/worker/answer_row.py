"""One answer on the head: how its tokens are chosen, and its reported figures."""

from __future__ import annotations

from time import monotonic

from core.engine.requests import Request
from core.engine.sampling import Picked, RowSampler
from core.engine.scheduler import EndedRow
from core.errors import Problem, StageFailed
from core.events import FinishReason
from core.rates import decode_rate
from core.worker.messages import AnswerDone, Departed, Token
from core.worker.reading import Waited


class AnswerRow:
    """One answer; times are seconds of the monotonic clock. `waited`: its wait for the prefill Mac."""

    def __init__(self, request: Request, sampler: RowSampler, waited: Waited | None) -> None:
        self.request, self.sampler = request, sampler
        self._started = waited.since if waited else monotonic()
        self._beside = waited.tokens if waited else 0
        self._first: float | None = None  # the first token chosen here
        self._last: float | None = None
        self._before = self._count = len(request.written)  # tokens of the answer
        self._seal_s = 0.0
        self._left_at: float | None = None  # when the first frame of the prompt left
        self._has_departed = False  # all of the prompt is on the ring

    def departed(self, seal_s: float, now: float, *, is_step: bool) -> Departed | None:
        """Note that a frame with a part of the prompt left; the first step after it completes the report."""
        if self._has_departed:
            return None
        self._seal_s += seal_s
        self._left_at = self._left_at or now
        if not is_step:
            return None
        self._has_departed = True
        return Departed(request_id=self.request.request_id, seal_s=self._seal_s, at=self._left_at)

    def token(self, picked: Picked, now: float) -> Token:
        self._first, self._last = self._first or now, now
        self._count += 1
        return Token(
            request_id=self.request.request_id,
            index=self._count - 1,
            token=picked.token,
            logprob=picked.logprob,
            top=picked.top,
        )

    def done(self, reason: FinishReason, problem: Problem | None = None, ended: EndedRow | None = None) -> AnswerDone:
        problem = problem or self.sampler.problem
        return AnswerDone(
            request_id=self.request.request_id,
            finish_reason="error" if problem else reason,
            prompt_tokens=len(self.request.tokens),
            tokens=self._count,
            reused_tokens=max(0, min(ended.reused, len(self.request.tokens)) - self._beside) if ended else 0,
            beside_tokens=self._beside,
            drafted_tokens=ended.drafted if ended else 0,
            accepted_tokens=ended.accepted if ended else 0,
            ttft_s=self._first - self._started if self._first else None,
            decode_tokens_per_s=decode_rate(self._count - self._before, self._first, self._last),
            problem=problem,
        )


def untouched(request: Request, reason: FinishReason, problem: Problem | None = None) -> AnswerDone:
    """The end of an answer that never went on the ring."""
    return AnswerDone(
        request_id=request.request_id,
        finish_reason=reason,
        prompt_tokens=len(request.tokens),
        tokens=len(request.written),
        problem=problem,
    )


def check_tokens(request: Request, vocabulary: int) -> None:
    """Raises StageFailed for token ids that are too large: MLX would read beyond its arrays."""
    if not request.tokens or not all(0 <= token < vocabulary for token in request.prefix):
        raise StageFailed(
            "The tokenizer produced token ids that the model does not have.",
            "Its tokenizer and its weights don't belong together: choose another version of the model.",
        )
