"""An answer that is under way on the head: what was asked, what is written of it, and what of that is shown."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from time import monotonic
from typing import NamedTuple, Protocol

import msgspec

from core.engine.requests import Request
from core.engine.stops import StopTexts
from core.errors import Problem
from core.events import FinishReason
from core.node.answers.token_log import AnswerRecord, TokenLog
from core.requests import Message
from core.worker.messages import AnswerDone


class TextSource(Protocol):
    """Tokens in, text out as soon as whole characters are there, as `core.models.text.tokenizer.TextStream`."""

    def add(self, token: int) -> str:
        """The text that `token` completes; may be empty."""

    def finish(self) -> str:
        """What was still held back."""


class EndedConversation(NamedTuple):
    """What was said, and the token ids of all of it, as the model read and wrote them."""

    tokens: list[int]
    messages: tuple[Message, ...]


class RunningAnswer:
    """It outlives the workers that write it: handed over again, it goes on behind `tokens`. `written` tokens were there
    before, of which the text `shown` was shown. `losses`: how often a worker lost it since its last token. `stopped`:
    a stop text has ended it.
    """

    def __init__(
        self, record: AnswerRecord, log: TokenLog, stream: TextSource, written: Sequence[int] = (), shown: str = ""
    ) -> None:
        self.record, self.log = record, log
        self.tokens = list(written)
        self.macs = frozenset(record.macs)
        self.is_handed_over = False
        self.losses = 0
        self.stopped = False
        self._lives = 0
        self._before = len(self.tokens)
        self._asked_at = self._last_at = monotonic()
        self._first_at: float | None = None
        self._stream = stream
        self._stops = StopTexts(record.stop)
        self._shown = shown
        self._ready = "".join(self._read(token) for token in self.tokens)[len(shown) :]

    @property
    def request_id(self) -> str:
        """Its name, with every worker."""
        return self.record.request_id

    def hand_over(self) -> Request:
        """What a worker is asked for now."""
        self.is_handed_over = True
        self._lives += 1
        return Request(
            request_id=self.request_id,
            tokens=self.record.prompt,
            eos=self.record.eos,
            written=list(self.tokens),
            **self.record.answer_options,
        )

    def join(self, macs: frozenset[str]) -> None:
        """These are about to take part. Raises OSError."""
        if more := macs - self.macs:
            self.log.join(sorted(more))
            self.macs |= more

    def write(self, token: int) -> str:
        """Commit the next token; the text that it lets show. Raises OSError: then it does not count."""
        self.log.append(token)
        self.tokens.append(token)
        self.losses = 0
        self._last_at = monotonic()
        self._first_at = self._first_at or self._last_at
        self._ready += self._read(token)
        text = ""
        with contextlib.suppress(OSError):  # what is not written is not shown: it comes with the end
            self.log.say(self._ready)
            text, self._ready = self._ready, ""
        self._shown += text
        return text

    def rest(self) -> str:
        """The text that was held back until the end."""
        text, self.stopped = self._stops.feed(self._stream.finish())
        return self._ready + text + self._stops.flush()

    def so_far(self, reason: FinishReason, problem: Problem | None = None) -> AnswerDone:
        """An end that the worker does not tell, with the figures that are known here."""
        return AnswerDone(
            request_id=self.request_id,
            finish_reason=reason,
            prompt_tokens=len(self.record.prompt),
            tokens=len(self.tokens),
            ttft_s=self._first_at - self._asked_at if self._first_at else None,
            decode_s=self._last_at - self._first_at if self._first_at else 0.0,
            problem=problem,
        )

    def figures(self, done: AnswerDone) -> AnswerDone:
        """The end that a worker tells; its clocks know only its own part of the answer."""
        if self._lives == 1 and not self._before:
            return done
        own = self.so_far(done.finish_reason)
        return msgspec.structs.replace(done, tokens=own.tokens, ttft_s=own.ttft_s, decode_s=own.decode_s)

    def rate(self, done: AnswerDone) -> float | None:
        """Tokens a second since the first one was shown."""
        shown = done.tokens - self._before
        return (shown - 1) / done.decode_s if shown > 1 and done.decode_s > 0 else None

    def conversation(self, rest: str) -> EndedConversation:
        """All that was said when it ended; `rest` is the text that was held back until then."""
        answer = Message(role="assistant", content=self._shown + rest)
        return EndedConversation([*self.record.prompt, *self.tokens], (*self.record.messages, answer))

    def _read(self, token: int) -> str:
        text, self.stopped = self._stops.feed("" if token in self.record.eos else self._stream.add(token))
        return text
