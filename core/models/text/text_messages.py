"""What a node and the process of its tokenizer say to each other over that process's stdin and stdout, packed by
`core.pipe_messages`. Each request is answered by what has its number; those of one stream are answered in their order.
"""

from __future__ import annotations

import msgspec

from core.errors import Problem
from core.requests import Message


class TextMessage(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of all of them."""

    number: int = 0


class ReadTokenizer(TextMessage, frozen=True, kw_only=True):
    """Read the tokenizer of the model in `directory`: the first request. Answered by `TokenizerRead`."""

    directory: str


class Encode(TextMessage, frozen=True, kw_only=True):
    """The prompt of a conversation, as `Tokens.encode`. Answered by `Encoded`."""

    messages: tuple[Message, ...]
    raw: bool


class Decode(TextMessage, frozen=True, kw_only=True):
    """The next tokens of `stream`, which begins with the first of them. Answered by `Decoded`."""

    stream: str
    tokens: list[int]


class EndStream(TextMessage, frozen=True, kw_only=True):
    """Nothing more comes of `stream`. Answered by `Decoded`."""

    stream: str


class TokenizerRead(TextMessage, frozen=True, kw_only=True):
    """It is read; `eos`: token ids that end an answer."""

    eos: frozenset[int]


class Encoded(TextMessage, frozen=True, kw_only=True):
    """The token ids of a prompt."""

    tokens: list[int]


class Decoded(TextMessage, frozen=True, kw_only=True):
    """The `text` that tokens complete, and what is held back and comes last if no more tokens do."""

    text: str = ""
    held: str = ""


class Refused(TextMessage, frozen=True, kw_only=True):
    """Why there is none."""

    problem: Problem


TextRequest = ReadTokenizer | Encode | Decode | EndStream
TextAnswer = TokenizerRead | Encoded | Decoded | Refused

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
