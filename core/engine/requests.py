"""A request as the engine knows it: token ids in, token ids out."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from core.constraint import Constraint
from core.engine.ring_work import Count
from core.events import FinishReason
from core.numbers import Size, TokenId
from core.requests.answers import AnswerOptions
from core.sampling_options import Sampling

ID_BYTES: Final = 16
RequestId = Annotated[bytes, msgspec.Meta(min_length=ID_BYTES, max_length=ID_BYTES)]


class Admit(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What whoever chooses the tokens of row `request` has to know; it travels where that is another Mac than the head.
    `written`: so many tokens of its answer are there already. `prompt`: as much of the end of prompt and answer as
    penalties look at. None of `eos` is chosen before there are `min_tokens` tokens. Where there is a `constraint`, the
    tokens that are written have to follow.
    """

    request: RequestId
    sampling: Sampling
    prompt: tuple[TokenId, ...] = ()
    eos: tuple[TokenId, ...] = ()
    min_tokens: Size = 0
    written: Count = 0
    constraint: Constraint | None = None


class Request(AnswerOptions, frozen=True, kw_only=True, tag=True):
    """One row: continue `tokens`; one of `eos` ends it, once there are `min_tokens`.

    `request_id` is 32 hex characters. `written`: so much of the answer is committed already; it goes on behind that,
    as if it had never stopped, and counts from there. `mirrored`: so many tokens of its beginning were mirrored by a
    worker before, and need not be read again.
    """

    request_id: str
    tokens: list[int]
    eos: list[int] = msgspec.field(default_factory=list)
    written: list[int] = msgspec.field(default_factory=list)
    mirrored: Size = 0

    @property
    def scores_prompt(self) -> bool:
        """Whether the logprobs of its prompt are still to be reported; they come before the first token."""
        return self.prompt_logprobs and self.sampling.logprobs is not None and not self.written

    @property
    def prefix(self) -> list[int]:
        """Everything before the next token: the prompt and the written part of the answer."""
        return self.tokens + self.written

    @property
    def left(self) -> int | None:
        """Tokens that its answer may still have, if some are written; None: it is a new one."""
        return self.max_tokens - len(self.written) if self.written else None

    @property
    def is_nearly_done(self) -> bool:
        """Whether an eighth of its answer is left at most."""
        return self.left is not None and 8 * self.left <= self.max_tokens

    @property
    def admit(self) -> Admit:
        """The options by which its tokens are chosen."""
        known = self.prefix
        return Admit(
            request=bytes.fromhex(self.request_id),
            sampling=self.sampling,
            prompt=tuple(known[max(0, len(known) - self.sampling.lookback) :]),
            eos=tuple(self.eos),
            min_tokens=self.min_tokens,
            written=len(self.written),
            constraint=self.constraint,
        )

    @property
    def ended(self) -> FinishReason | None:
        """Why nothing follows what is written; None while something does."""
        return self.end(len(self.written), self.written[-1]) if self.written else None

    def end(self, count: int, token: int) -> FinishReason | None:
        """Why an answer of `count` tokens ends with `token`; None where it goes on."""
        if token in self.eos and count > self.min_tokens:
            return "stop"
        return "length" if count >= self.max_tokens else None
