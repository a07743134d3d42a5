"""One answer in progress on the head: its request, its tokens, and the text shown so far."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from time import monotonic
from typing import NamedTuple

import msgspec

from core.engine.requests import Request
from core.errors import Problem
from core.events import Batch, BatchRow, FinishReason, PromptLogprobs
from core.models.text.text_messages import Decoded, Refused
from core.node.answers.answer_stream import PlainReader, Reader
from core.node.answers.token_log import AnswerRecord, TokenLog, UnloggedAnswer
from core.node.answers.tokenizer import AnswerText
from core.node.base.client_name import CLIENT
from core.node.base.stopwatch import Stopwatch
from core.rates import decode_rate
from core.requests.answers import Message, RequestAccepted
from core.worker.messages import AnswerDone, Departed, Token


class EndedConversation(NamedTuple):
    """A conversation whose answer has ended."""

    tokens: list[int]  # prompt and answer, as the model read and wrote them
    messages: tuple[Message, ...]


class RunningAnswer:
    """An answer that outlives its workers: handed to another one, it continues after `written`."""

    def __init__(
        self,
        record: AnswerRecord,
        log: TokenLog | UnloggedAnswer,
        stream: AnswerText,
        written: Sequence[int] = (),  # tokens of an answer that is continued
        decoded: Decoded = Decoded(),  # noqa: B008 - frozen; the text of `written`
        shown: str = "",  # the part of that text that was shown
        watch: Stopwatch | None = None,  # times the way of the prompt to the ring
    ) -> None:
        self.watch = watch
        self.record, self.log = record, log
        self.client = CLIENT.get()
        self.tokens = list(written)
        self.macs = frozenset(record.macs)
        self.is_handed_over = False
        self.losses = self.deaths = 0  # workers that lost it, or ended at it, since its last token
        self._lives = 0  # workers that it was handed to
        self._before = len(self.tokens)
        self._asked_at = self._last_at = monotonic()
        self._first_at: float | None = None
        self.unread: deque[Token] = deque()  # tokens that are still being decoded; they do not count yet
        self.end: AnswerDone | None = None  # the worker's end, which waits for the unread tokens
        self._stream = stream
        self._stops = StopTexts(record.stop)
        self._shown = shown
        text, self.stopped = self._stops.feed(decoded.text)  # `stopped`: a stop text has ended it
        self._ready, self._held = text[len(shown) :], decoded.held

    @property
    def request_id(self) -> str:
        return self.record.request_id

    @property
    def stop_text(self) -> str:
        return self._stops.found

    @property
    def accepted(self) -> RequestAccepted:
        return RequestAccepted(request_id=self.request_id, prompt_tokens=len(self.record.prompt))

    def reader(self) -> Reader:
        if self.record.raw:
            return PlainReader()
        return self._stream.reader(self.record.prompt, self.record.tools)

    @property
    def written(self) -> list[int]:
        return [*self.tokens, *(token.token for token in self.unread)]

    @property
    def known(self) -> list[int]:
        return [*self.record.prompt, *self.written]

    def hand_over(self, mirrored: int) -> Request:
        """The request for a worker; the first `mirrored` tokens are in the KV mirror."""
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
        if more := macs - self.macs:
            self.log.join(sorted(more))
            self.macs |= more

    def left(self, reported: Departed) -> None:
        if self.watch and self._first_at is None:
            self.watch.lap_until("coordinator_to_provider", reported.at)
            self.watch.note("encrypt", reported.seal_s)
            self.watch = None

    def is_next(self, token: Token) -> bool:
        return token.index == len(self.tokens) + len(self.unread)

    def read(self, token: Token, then: Callable[[RunningAnswer, Token, Decoded | Refused], None]) -> None:
        """Decode the next token; `then` gets the tokens with their text, in order."""
        if not self.unread and self._is_silent(token):
            then(self, token, Decoded(held=self._held))
            return
        self.unread.append(token)
        if not self._is_silent(token):
            tokens = [] if token.token in self.record.eos else [token.token]
            self._stream.add(tokens, [one for one, _ in token.top], partial(self._take, then))

    def read_scores(self, report: PromptLogprobs, then: Callable[[PromptLogprobs], None]) -> None:
        ids = [one for each in report.tokens for one in (each.token, *(other for other, _ in each.top))]
        self._stream.add([], ids, lambda decoded: then(_named(report, decoded)))

    def _is_silent(self, token: Token) -> bool:
        """Whether there is nothing to decode."""
        return token.token in self.record.eos and token.logprob is None

    def _take(
        self, then: Callable[[RunningAnswer, Token, Decoded | Refused], None], decoded: Decoded | Refused
    ) -> None:
        if not self.unread:
            return  # the answer was ended early
        then(self, self.unread.popleft(), decoded)
        while self.unread and self._is_silent(self.unread[0]):
            then(self, self.unread.popleft(), Decoded(held=self._held))

    def write(self, token: int, decoded: Decoded) -> str:
        """Commit the next token and return the text to show. Raises OSError; then the token does not count."""
        self.log.append(token)
        self.tokens.append(token)
        self.losses = self.deaths = 0
        self._last_at = monotonic()
        self._first_at = self._first_at or self._last_at
        text, self.stopped = self._stops.feed(decoded.text)
        self._ready, self._held = self._ready + text, decoded.held
        text = ""
        with contextlib.suppress(OSError):  # text missing in the log is shown only with the end
            self.log.say(self._ready)
            text, self._ready = self._ready, ""
        self._shown += text
        return text

    def rest(self) -> str:
        self.unread.clear()
        self._stream.end()
        text, self.stopped = self._stops.feed(self._held)
        return self._ready + text + self._stops.flush()

    def so_far(self, reason: FinishReason, problem: Problem | None = None) -> AnswerDone:
        """An end with the figures known here, for an answer that the worker did not end."""
        return AnswerDone(
            request_id=self.request_id,
            finish_reason=reason,
            prompt_tokens=len(self.record.prompt),
            tokens=len(self.tokens),
            ttft_s=self._first_at - self._asked_at if self._first_at else None,
            decode_tokens_per_s=decode_rate(len(self.tokens) - self._before, self._first_at, self._last_at),
            problem=problem,
        )

    def figures(self, done: AnswerDone) -> AnswerDone:
        """The worker's end, with figures of the whole answer if several workers wrote it."""
        if self._lives == 1 and not self._before:
            return done
        own = self.so_far(done.finish_reason)
        rate = own.decode_tokens_per_s
        return msgspec.structs.replace(done, tokens=own.tokens, ttft_s=own.ttft_s, decode_tokens_per_s=rate)

    def conversation(self, rest: str) -> EndedConversation:
        answer = Message(role="assistant", content=self._shown + rest)
        return EndedConversation([*self.record.prompt, *self.tokens], (*self.record.messages, answer))


def _named(report: PromptLogprobs, decoded: Decoded | Refused) -> PromptLogprobs:
    names = iter(decoded.names if isinstance(decoded, Decoded) else ())
    tokens = tuple(
        msgspec.structs.replace(each, names=tuple(islice(names, len(each.top) + 1))) for each in report.tokens
    )
    return msgspec.structs.replace(report, tokens=tokens)


def batch_now(reported: Batch, running: Mapping[str, RunningAnswer]) -> Batch:
    """The rows of `reported` that still run, then the answers that the worker does not have yet."""
    alive = [row for row in reported.rows if row.request_id in running and running[row.request_id].is_handed_over]
    known = {row.request_id for row in alive}
    unknown = [one for name, one in running.items() if name not in known]
    rows = (*(_measured(row, running[row.request_id]) for row in alive), *map(_waiting, unknown))
    return msgspec.structs.replace(reported, rows=rows)


def _measured(row: BatchRow, running: RunningAnswer) -> BatchRow:
    return msgspec.structs.replace(row, tokens_per_s=running.so_far("stop").decode_tokens_per_s, client=running.client)


def _waiting(running: RunningAnswer) -> BatchRow:
    record = running.record
    return BatchRow(
        request_id=record.request_id,
        prompt_tokens=len(record.prompt),
        written=len(running.tokens),
        max_tokens=record.max_tokens,
        client=running.client,
    )


class StopTexts:
    """Passes text on up to the first occurrence of one of `texts`: the one that ends first, then the one that starts
    first, which is `found` then. A possible start of one is held back.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._held = ""
        self._stopped = False
        self.found = ""

    def feed(self, text: str) -> tuple[str, bool]:
        """The text to show now, and whether a stop text ended the answer: nothing shows after that."""
        if self._stopped:
            return "", True
        text, self._held = self._held + text, ""
        found = [(start + len(stop), start, stop) for stop in self._texts if (start := text.find(stop)) >= 0]
        if found:
            _, start, self.found = min(found)
            self._stopped = True
            return text[:start], True
        shown = len(text) - self._beginning(text)
        self._held = text[shown:]
        return text[:shown], False

    def flush(self) -> str:
        held, self._held = self._held, ""
        return held

    def _beginning(self, text: str) -> int:
        longest = max((len(stop) - 1 for stop in self._texts), default=0)
        lengths = range(min(longest, len(text)), 0, -1)
        return next((n for n in lengths if any(stop.startswith(text[-n:]) for stop in self._texts)), 0)
