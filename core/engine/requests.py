"""A request as the engine knows it: token ids in, token ids out."""

from __future__ import annotations

import msgspec

from core.events import FinishReason
from core.requests import Sampling


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One row: continue `tokens` by at most `max_tokens`; one of `eos` ends it, once there are `min_tokens`.

    `request_id` is 32 hex characters. `written`: so much of the answer is committed already; it goes on behind that,
    as if it had never stopped, and counts from there.
    """

    request_id: str
    tokens: list[int]
    max_tokens: int
    min_tokens: int = 0
    eos: list[int] = []
    sampling: Sampling = Sampling()
    written: list[int] = []

    @property
    def beginning(self) -> list[int]:
        """What is known before the next token is chosen: prompt and what is written of the answer."""
        return self.tokens + self.written

    @property
    def ended(self) -> FinishReason | None:
        """Why nothing follows what is written; None while something does."""
        return self.end(len(self.written), self.written[-1]) if self.written else None

    def end(self, count: int, token: int) -> FinishReason | None:
        """Why an answer of `count` tokens ends with `token`; None where it goes on."""
        if token in self.eos and count > self.min_tokens:
            return "stop"
        return "length" if count >= self.max_tokens else None
