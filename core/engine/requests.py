"""A request as the engine knows it: token ids in, token ids out."""

from __future__ import annotations

import msgspec

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
