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


class Admit(msgspec.Struct, frozen=True, array_like=True, tag="Admit"):
    """Input of a row's sampler; sent to the Mac that chooses its tokens, if that isn't the head."""

    request: RequestId
    sampling: Sampling
    prompt: tuple[TokenId, ...] = ()  # the end of prompt and answer, as much as penalties look at
    eos: tuple[TokenId, ...] = ()
    min_tokens: Size = 0  # none of `eos` is chosen before
    # tokens of the answer that are written; they follow in frames of their own if there is a constraint
    written: Count = 0
    constraint: Constraint | None = None


class Request(AnswerOptions, frozen=True, kw_only=True, tag="Request"):
    """One request: continue `tokens` until one of `eos`, allowed from `min_tokens` tokens on, or `max_tokens`."""

    request_id: str  # 32 hex characters
    tokens: list[int]
    eos: list[int] = msgspec.field(default_factory=list)
    # committed part of the answer, which continues and counts from there
    written: list[int] = msgspec.field(default_factory=list)
    mirrored: Size = 0  # first tokens that an earlier worker mirrored, and that need not be read again

    @property
    def scores_prompt(self) -> bool:
        """Whether logprobs of its prompt are still to be reported, before the first token."""
        return self.prompt_logprobs and self.sampling.logprobs is not None and not self.written

    @property
    def prefix(self) -> list[int]:
        return self.tokens + self.written

    @property
    def left(self) -> int | None:
        """Tokens left of a partly written answer; None for a new one."""
        return self.max_tokens - len(self.written) if self.written else None

    @property
    def admit(self) -> Admit:
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
        return self.end(len(self.written), self.written[-1]) if self.written else None

    def end(self, count: int, token: int) -> FinishReason | None:
        if token in self.eos and count > self.min_tokens:
            return "stop"
        return "length" if count >= self.max_tokens else None
