"""One answer on the head: prompt in chunks round the ring, then token by token, until a stop."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from core.engine.sampling import token_sampler
from core.errors import LinkError, LinkLost, LinkTimeout, MaclusterError, StageFailed
from core.events import FinishReason
from core.worker.desk import Desk
from core.worker.messages import Done, Generate, Prefilled, Report, Samples, StageSample, Token
from core.worker.ring import Ring
from core.worker.rounds import Rounds, chunks
from core.worker.stage import Stage

TELEMETRY_EVERY_S = 0.5


class Answer:
    """Runs a Generate over the stage and, where the model is split, the ring. A cancel counts before each step."""

    def __init__(
        self,
        asked: Generate,
        stage: Stage,
        ring: Ring | None,
        chunk: int,
        report: Callable[[Report], None],
        desk: Desk,
    ) -> None:
        self._asked = asked
        self._stage = stage
        self._rounds = Rounds(bytes.fromhex(asked.request_id), stage, ring, desk)
        self._chunk = chunk
        self._report = report
        self._desk = desk
        self._started = perf_counter()
        self._first: float | None = None
        self._count = 0
        self._telemetry_due = self._started + TELEMETRY_EVERY_S

    def run(self) -> LinkError | None:
        """Report tokens and then Done. Returns the link error that broke the ring, if one did."""
        broken: LinkError | None = None
        reason: FinishReason = "error"
        problem = None
        try:
            self._begin()
            reason = self._generate()
        except LinkError as error:
            broken, problem = error, error.problem
        except MaclusterError as error:
            problem = error.problem
        decode_s = perf_counter() - self._first if self._first else 0.0
        broken = broken or self._end()
        self._stage.end()
        self._report(
            Done(
                request_id=self._asked.request_id,
                finish_reason=reason,
                prompt_tokens=len(self._asked.tokens),
                tokens=self._count,
                ttft_s=self._first - self._started if self._first else None,
                decode_s=decode_s,
                problem=problem,
            )
        )
        return broken

    def _begin(self) -> None:
        self._rounds.begin()
        vocabulary = self._stage.layers.vocab_size
        if not self._asked.tokens or not all(0 <= token < vocabulary for token in self._asked.tokens):
            raise StageFailed(
                "The tokenizer gave token ids that the model does not have.",
                "The tokenizer and the weights of this model do not belong together: fetch the model again.",
            )

    def _generate(self) -> FinishReason:
        if not self._prefill():
            return "cancelled"
        pick = token_sampler(self._asked.temperature, self._asked.top_p, self._asked.seed)
        token = self._asked.tokens[-1]
        while not self._desk.cancelled(self._asked.request_id):
            token = pick(self._rounds.step(token))
            self._first = self._first or perf_counter()
            self._report(Token(request_id=self._asked.request_id, index=self._count, token=token))
            self._count += 1
            if token in self._asked.eos:
                return "stop"
            if self._count >= self._asked.max_tokens:
                return "length"
            self._telemetry()
        return "cancelled"

    def _prefill(self) -> bool:
        """All of the prompt but its last token, as mlx-lm's generate_step does; False when cancelled on the way."""
        total = len(self._asked.tokens)
        for part in chunks(self._asked.tokens[:-1], self._chunk):
            if self._desk.cancelled(self._asked.request_id):
                return False
            self._rounds.prefill(part)
            self._report(Prefilled(request_id=self._asked.request_id, done=self._stage.position, total=total))
        return True

    def _telemetry(self) -> None:
        if perf_counter() >= self._telemetry_due:
            self._telemetry_due = perf_counter() + TELEMETRY_EVERY_S
            self._tell(self._rounds.gather())

    def _end(self) -> LinkError | None:
        """The end frame is the last of a request; it comes back with every stage's figures. A ring that breaks now
        does not take back an answer that is complete.
        """
        try:
            self._tell(self._rounds.end())
        except LinkError as error:
            return error
        except MaclusterError:
            return LinkTimeout("The ring did not come to rest after the answer.")
        return None

    def _tell(self, samples: list[StageSample]) -> None:
        if samples:
            self._report(Samples(request_id=self._asked.request_id, stages=samples))


def refusal(asked: Generate) -> Done:
    """The answer to a request that came while the links of this stage were down."""
    problem = LinkLost("The ring was being linked anew when the request came.", "Send it again.").problem
    return Done(
        request_id=asked.request_id,
        finish_reason="error",
        prompt_tokens=len(asked.tokens),
        tokens=0,
        ttft_s=None,
        decode_s=0.0,
        problem=problem,
    )
