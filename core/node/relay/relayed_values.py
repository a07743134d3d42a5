"""Values of relayed requests and replies, and how they are sent in pieces that fit a frame.

Text arrives unchanged; only problems are cleaned, since they are shown in a terminal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from core.answer_parts import AnswerPart
from core.errors import Problem, ProtocolError
from core.events import PromptLogprobs, RequestDone, TokenEvent
from core.node.base.message_table import TEXT_LIMIT
from core.node.base.node_message import PIECE_BYTES
from core.numbers import Size, TokenId
from core.requests.answers import ChatRequest
from core.text import clean_line

MOST_ASKED: Final = 64 << 20  # bytes of one request


class RelayedValue(msgspec.Struct, frozen=True, kw_only=True, tag=""):
    """Base of the values that are not events of an answer."""


class AnswerWanted(RelayedValue, frozen=True, kw_only=True, tag="AnswerWanted"):
    """Requests an answer, streamed up to a RequestDone."""

    request: ChatRequest


class CountWanted(RelayedValue, frozen=True, kw_only=True, tag="CountWanted"):
    """Requests the number of tokens of a prompt."""

    request: ChatRequest


class TextWanted(RelayedValue, frozen=True, kw_only=True, tag="TextWanted"):
    """Requests the text of token ids."""

    tokens: tuple[TokenId, ...]


class Accepted(RelayedValue, frozen=True, kw_only=True, tag="Accepted"):
    """The request was accepted."""

    prompt_tokens: Size


class NotAnswered(RelayedValue, frozen=True, kw_only=True, tag="NotAnswered"):
    """The request failed."""

    problem: Problem


Wanted = AnswerWanted | CountWanted | TextWanted
# the events of an answer, or a prompt's number of tokens, or a text; None keeps the request alive: it is queued, or the
# ring is at work
Relayed = Accepted | PromptLogprobs | TokenEvent | AnswerPart | RequestDone | Size | str | NotAnswered | None
LAST: Final = (RequestDone, int, str, NotAnswered)

_encoder = msgspec.msgpack.Encoder()
_wanted: Final = msgspec.msgpack.Decoder(Wanted)
_relayed: Final = msgspec.msgpack.Decoder(Relayed)


def encoded(value: Wanted | Relayed) -> bytes:
    return _encoder.encode(value)


def pieces(body: bytes) -> Iterator[tuple[bytes, bool]]:
    for at in range(0, len(body), PIECE_BYTES):
        yield body[at : at + PIECE_BYTES], at + PIECE_BYTES >= len(body)


def wanted_from(body: bytes) -> Wanted:
    try:
        wanted: Wanted = _wanted.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ProtocolError("A relayed request does not decode.") from error
    return wanted


def relayed_from(body: bytes) -> Relayed:
    try:
        value: Relayed = _relayed.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ProtocolError("A reply to a relayed request does not decode.") from error
    if isinstance(value, NotAnswered | RequestDone) and value.problem:
        return msgspec.structs.replace(value, problem=_cleaned(value.problem))
    return value


def _cleaned(problem: Problem) -> Problem:
    return Problem(**{name: clean_line(text)[:TEXT_LIMIT] for name, text in msgspec.structs.asdict(problem).items()})


class Assembly:
    """Puts values of at most `most` bytes together from pieces, which carry the number of their request."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._number, self._said = -1, bytearray()

    def add(self, number: int, piece: bytes, *, is_last: bool) -> bytes | None:
        """Returns the whole value with its last piece; another number drops an unfinished one. Raises ProtocolError."""
        if number != self._number:
            self._number, self._said = number, bytearray()
        self._said += piece
        if len(self._said) > self._most:
            raise ProtocolError(f"A relayed request has more than {self._most} bytes.")
        if not is_last:
            return None
        whole, self._number, self._said = bytes(self._said), -1, bytearray()
        return whole
