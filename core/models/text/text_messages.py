"""What a node and the process of its tokenizer say to each other over that process's stdin and stdout, packed by
`core.pipe_messages`. Requests are answered in their order.
"""

from __future__ import annotations

import signal
from typing import Final

import msgspec

from core.answer_parts import AnswerPart, CallRules, Tool
from core.constraint import Constraint
from core.errors import Problem
from core.requests.answers import Message, TemplateOptions

PROMPT_END: Final = 16  # so many tokens of a prompt show whether the model thinks at once
OUT_OF_TIME: Final = signal.SIGPROF  # what ends the process where a chat template takes too long


class TextMessage(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of all of them."""


class ReadTokenizer(TextMessage, frozen=True, kw_only=True):
    """Read the tokenizer of the model in `directory`: the first request. Answered by `TokenizerRead`."""

    directory: str


class Encode(TextMessage, frozen=True, kw_only=True):
    """The prompt of a conversation, as `Tokens.encode`. Answered by `Encoded`."""

    messages: tuple[Message, ...]
    raw: bool
    tools: tuple[Tool, ...] = ()
    template_options: TemplateOptions = {}


class Constrain(TextMessage, frozen=True, kw_only=True):
    """What the answer to a prompt that ends with `prompt_end` must look like, as `Tokens.constrain`. Answered
    by `Constrained`.
    """

    constraint: Constraint | None
    calls: CallRules
    prompt_end: list[int]
    raw: bool


class Decode(TextMessage, frozen=True, kw_only=True):
    """The next tokens of `stream`, which begins with the first of them. Answered by `Decoded`."""

    stream: str
    tokens: list[int]


class EndStream(TextMessage, frozen=True, kw_only=True):
    """Nothing more comes of `stream`. Answered by `Decoded`."""

    stream: str


class BeginReading(TextMessage, frozen=True, kw_only=True):
    """The answer `stream` is to be told in parts; its prompt ends with the tokens `prompt_end`. `shaped`: it has a
    constraint. Answered by `Parts`.
    """

    stream: str
    prompt_end: list[int]
    tools: tuple[Tool, ...]
    shaped: bool = False


class ReadText(TextMessage, frozen=True, kw_only=True):
    """More text of the answer `stream`, which is being told in parts. Answered by `Parts`."""

    stream: str
    text: str


class EndReading(TextMessage, frozen=True, kw_only=True):
    """Nothing more comes of it; `is_whole`: for the model ended it. Answered by `Parts`."""

    stream: str
    is_whole: bool


class TokenizerRead(TextMessage, frozen=True, kw_only=True):
    """It is read; `eos`: token ids that end an answer; `vocab_size` counts all ids that it can produce."""

    eos: frozenset[int]
    vocab_size: int


class Encoded(TextMessage, frozen=True, kw_only=True):
    """The token ids of a prompt."""

    tokens: list[int]


class Constrained(TextMessage, frozen=True, kw_only=True):
    """The same as the worker is told of it."""

    constraint: Constraint


class Decoded(TextMessage, frozen=True, kw_only=True):
    """The `text` that tokens complete, and what is held back and comes last if no more tokens do."""

    text: str = ""
    held: str = ""


class Parts(TextMessage, frozen=True, kw_only=True):
    """What the text completes."""

    parts: tuple[AnswerPart, ...] = ()


class Refused(TextMessage, frozen=True, kw_only=True):
    """Why there is none."""

    problem: Problem


TextRequest = ReadTokenizer | Encode | Constrain | Decode | EndStream | BeginReading | ReadText | EndReading
TextAnswer = TokenizerRead | Encoded | Constrained | Decoded | Parts | Refused

_requests = msgspec.msgpack.Decoder(TextRequest)
_answers = msgspec.msgpack.Decoder(TextAnswer)


def unpack_request(body: bytes) -> TextRequest:
    """A request without its length; raises msgspec.ValidationError."""
    request: TextRequest = _requests.decode(body)
    return request


def unpack_answer(body: bytes) -> TextAnswer:
    """An answer without its length; raises msgspec.ValidationError."""
    answer: TextAnswer = _answers.decode(body)
    return answer
