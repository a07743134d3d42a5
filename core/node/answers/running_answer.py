"""An answer that is under way on the head: what was asked, what is written of it, and what of that is shown."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import NamedTuple

import msgspec

from core.engine.requests import Request
from core.engine.stops import StopTexts
from core.errors import Problem
from core.events import FinishReason
from core.models.text.text_messages import Decoded, Refused
from core.node.answers.answer_stream import PlainReader, Reader
from core.node.answers.token_log import AnswerRecord, TokenLog
from core.node.answers.tokenizer import AnswerText
from core.node.answers.unlogged_answer import UnloggedAnswer
from core.node.base.client_name import CLIENT
from core.node.base.stopwatch import Stopwatch
from core.requests.answers import Message, RequestAccepted
from core.worker.messages import AnswerDone, Departed, Token


class EndedConversation(NamedTuple):
    """What was said, and the token ids of all of it, as the model read and wrote them."""

    tokens: list[int]
    messages: tuple[Message, ...]


class RunningAnswer:
    """It outlives the workers that write it: handed over again, it goes on behind `tokens` and `unread`, which are
    still being turned into text and do not count before. `written` tokens were there at its begin, which say `decoded`,
    of which the text `shown` was shown. `losses`: how often a worker lost it since its last token. `stopped`: a stop
    text has ended it. `end`: what a worker told of its end, which waits for the unread tokens. `watch`: times how its
    prompt leaves.
    """

    def __init__(
        self,
        record: AnswerRecord,
        log: TokenLog | UnloggedAnswer,
        stream: AnswerText,
        written: Sequence[int] = (),
        decoded: Decoded = Decoded(),  # noqa: B008 - it is frozen
        shown: str = "",
        watch: Stopwatch | None = None,
    ) -> None:
        self.watch = watch
        self.record, self.log = record, log
        self.client = CLIENT.get()
        self.tokens = list(written)
        self.macs = frozenset(record.macs)
        self.is_handed_over = False
        self.losses = 0
        self.stopped = False
        self._lives = 0
        self._before = len(self.tokens)
        self._asked_at = self._last_at = monotonic()
        self._first_at: float | None = None
        self.unread: deque[Token] = deque()
        self.end: AnswerDone | None = None
        self._stream = stream
        self._stops = StopTexts(record.stop)
        self._shown = shown
        text, self.stopped = self._stops.feed(decoded.text)
        self._ready, self._held = text[len(shown) :], decoded.held

    @property
    def request_id(self) -> str:
        """Its name, with every worker."""
        return self.record.request_id

    @property
    def stop_text(self) -> str:
        """Which stop text ended it."""
        return self._stops.found

    @property
    def accepted(self) -> RequestAccepted:
        """What whoever asked is told first."""
        return RequestAccepted(request_id=self.request_id, prompt_tokens=len(self.record.prompt))

    def reader(self) -> Reader:
        """What tells the parts of its text."""
        if self.record.raw:
            return PlainReader()
        return self._stream.reader(self.record.prompt, self.record.tools, shaped=self.record.constraint is not None)

    @property
    def written(self) -> list[int]:
        """What workers have written of it, also what is not text yet."""
        return [*self.tokens, *(token.token for token in self.unread)]

    @property
    def known(self) -> list[int]:
        """The prompt, and what is written behind it."""
        return [*self.record.prompt, *self.written]

    def hand_over(self, mirrored: int) -> Request:
        """What a worker is asked for now, of which so many tokens are mirrored."""
        self.is_handed_over = True
        self._lives += 1
        request = Request(
            request_id=self.request_id,
            tokens=self.record.prompt,
            eos=self.record.eos,
            written=self.written,
            mirrored=mirrored,
            **self.record.answer_options,
        )
        return msgspec.structs.replace(request, mirrored=0) if request.scores_prompt else request

    def join(self, macs: frozenset[str]) -> None:
        """These are about to take part. Raises OSError."""
        if more := macs - self.macs:
            self.log.join(sorted(more))
            self.macs |= more

    def left(self, reported: Departed) -> None:
        """Its prompt is on its way round the ring, for the first time: whoever measures hears of it."""
        if self.watch and self._first_at is None:
            self.watch.lap_until("coordinator_to_provider", reported.at)
            self.watch.note("encrypt", reported.seal_s)
            self.watch = None

    def is_next(self, token: Token) -> bool:
        """Whether it follows all that a worker told before."""
        return token.index == len(self.tokens) + len(self.unread)

    def read(self, token: Token, then: Callable[[RunningAnswer, Token, Decoded | Refused], None]) -> None:
        """Have the next token turned into text. `then` is called with what it says, in the order of the tokens."""
        if not self.unread and token.token in self.record.eos:
            then(self, token, Decoded(held=self._held))
            return
        self.unread.append(token)
        if token.token not in self.record.eos:
            self._stream.add(token.token, partial(self._take, then))

    def _take(
        self, then: Callable[[RunningAnswer, Token, Decoded | Refused], None], decoded: Decoded | Refused
    ) -> None:
        if not self.unread:
            return  # it was broken off
        then(self, self.unread.popleft(), decoded)
        while self.unread and self.unread[0].token in self.record.eos:
            then(self, self.unread.popleft(), Decoded(held=self._held))

    def write(self, token: int, decoded: Decoded) -> str:
        """Commit the next token; the text that it lets show. Raises OSError: then it does not count."""
        self.log.append(token)
        self.tokens.append(token)
        self.losses = 0
        self._last_at = monotonic()
        self._first_at = self._first_at or self._last_at
        text, self.stopped = self._stops.feed(decoded.text)
        self._ready, self._held = self._ready + text, decoded.held
        text = ""
        with contextlib.suppress(OSError):  # what is not written is not shown: it comes with the end
            self.log.say(self._ready)
            text, self._ready = self._ready, ""
        self._shown += text
        return text

    def rest(self) -> str:
        """The text that was held back until the end, where no more tokens count."""
        self.unread.clear()
        self._stream.end()
        text, self.stopped = self._stops.feed(self._held)
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
