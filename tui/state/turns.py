"""One message of the conversation, and how an answer grows, ends and continues."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from core.events import RequestDone, TokenEvent, Value
from core.requests.answers import Message, UnfinishedAnswer
from core.text import Clean, clean_text
from tui.state.progress_rate import Pace

INTERRUPTED = "answer interrupted"

_change = msgspec.structs.replace


class Remark(Value, frozen=True, kw_only=True):
    """A notice after the first `at` characters of an answer; neither copied nor sent to the model."""

    at: int
    words: str


class Turn(Value, frozen=True, kw_only=True):
    """One message of the conversation."""

    number: int  # from 1, never repeats
    parent: int = 0  # number of the message before, 0 for none
    role: Literal["user", "assistant"]
    text: Clean
    at: float  # seconds since the epoch, like `first_at` and `last_at`
    done: bool = True
    request_id: str = ""  # "" until the node accepted the question
    prompt_tokens: int = 0
    tokens: int = 0
    earlier: int = 0  # tokens written before `first_at`
    first_at: float | None = None
    last_at: float | None = None
    ttft_s: float | None = None
    tokens_per_s: float | None = None
    why: str = ""  # why the answer stopped, if it did not simply end
    is_valid: bool | None = None  # whether it has the requested format; None if none was requested, or not known yet
    remarks: tuple[Remark, ...] = ()
    reading: Pace | None = None  # prefill progress

    @property
    def rate(self) -> float | None:
        """Tokens per second: measured by the node, else from what arrived here so far."""
        if self.tokens_per_s is not None:
            return self.tokens_per_s
        fresh = self.tokens - self.earlier
        if self.first_at is None or self.last_at is None or fresh < 2 or self.last_at <= self.first_at:
            return None
        return (fresh - 1) / (self.last_at - self.first_at)


def said_before(messages: Iterable[Message], first: int, now: float) -> tuple[Turn, ...]:
    """Messages as turns, numbered from `first`."""
    spoken = [m for m in messages if m.role in ("user", "assistant")]
    return tuple(
        Turn(
            number=number,
            parent=number - 1 if number > first else 0,
            role="user" if m.role == "user" else "assistant",
            text=clean_text(m.content),
            at=now,
        )
        for number, m in enumerate(spoken, first)
    )


def grown(answer: Turn, event: TokenEvent, now: float) -> Turn:
    """Add a token; a token that is already there changes nothing."""
    if event.index < answer.tokens:
        return answer
    return _change(
        answer,
        text=Clean(answer.text + clean_text(event.text)),
        tokens=event.index + 1,
        first_at=now if answer.first_at is None else answer.first_at,
        last_at=now,
        reading=None,
    )


def ended(answer: Turn, event: RequestDone, now: float) -> Turn:
    """End the answer, with the node's figures."""
    return _change(
        answer,
        text=Clean(answer.text + clean_text(event.text)),
        done=True,
        tokens=event.tokens,
        prompt_tokens=event.prompt_tokens,
        ttft_s=event.ttft_s,
        tokens_per_s=event.decode_tokens_per_s,
        why=_why(event),
        is_valid=event.is_valid,
        last_at=answer.last_at or now,
    )


def remarked(answer: Turn, words: str) -> Turn:
    return _change(answer, remarks=(*answer.remarks, Remark(at=len(answer.text), words=words)))


def gone_on(answer: Turn, kept: UnfinishedAnswer) -> Turn:
    """Continue an interrupted answer after its text on screen, or after its saved text if that is longer."""
    text = Clean(kept.text) if kept.text.startswith(answer.text) else answer.text
    tokens = max(answer.tokens, kept.tokens)
    again = _change(answer, text=text, tokens=tokens, earlier=tokens, done=False, why="", is_valid=None)
    # the time in between does not count
    return remarked(_change(again, first_at=None, last_at=None, ttft_s=None, tokens_per_s=None), "continued")


def _why(event: RequestDone) -> str:
    if event.problem is not None:
        return f"{INTERRUPTED}: {event.problem.what}"
    return {"cancelled": "stopped by you", "length": "stopped at the token limit", "error": INTERRUPTED}.get(
        event.finish_reason, ""
    )
