"""How the answers to a request of OpenAI's clients are told: chunks of choices, then the usage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from core.errors import MaclusterError
from core.node.answers.answer_stream import Said
from core.node.public_api.answer_so_far import AnswerChoice
from core.node.public_api.chat_replies import error_body
from core.node.public_api.http_bodies import event

_STILL_THERE: Final = b": still there\n\n"  # a comment, which clients skip
_DONE: Final = b"data: [DONE]\n\n"

_C = TypeVar("_C", bound=AnswerChoice)
_Of = TypeVar("_Of", bound=AnswerChoice, contravariant=True)


class Chunks(Protocol[_Of]):
    """The bodies of chat completions, or of completions."""

    def whole(self, choices: Sequence[_Of]) -> dict[str, Any]:
        """The body of a reply that does not stream."""

    def beginning(self, choice: _Of) -> dict[str, Any] | None:
        """The first chunk of a choice, where it has one."""

    def piece(self, choice: _Of, said: Said) -> dict[str, Any] | None:
        """A chunk, after `choice` took what was said."""

    def ending(self, choices: Sequence[_Of]) -> dict[str, Any]:
        """The chunk with the usage."""


class OpenAiEncoder(Generic[_C]):
    """A `ReplyEncoder`."""

    has_comments: ClassVar = True

    def __init__(self, chunks: Chunks[_C], choices: Sequence[_C], *, reports_usage: bool) -> None:
        self._chunks, self._choices, self._reports_usage = chunks, choices, reports_usage

    def take(self, index: int, said: Said) -> list[bytes]:
        """What came of the choice of that index."""
        choice = self._choices[index]
        choice.take(said)
        piece = self._chunks.piece(choice, said)
        return [event(piece)] if piece else []

    def beginning(self) -> list[bytes]:
        """The first chunk of each choice."""
        return [event(begun) for choice in self._choices if (begun := self._chunks.beginning(choice))]

    def still_there(self) -> bytes:
        """A comment."""
        return _STILL_THERE

    def failed(self, error: MaclusterError) -> bytes:
        """The body that the error has elsewhere."""
        return event(error_body(error.problem))

    def ending(self) -> list[bytes]:
        """The usage, where it was asked for, and the mark."""
        return [*([event(self._chunks.ending(self._choices))] if self._reports_usage else []), _DONE]

    def whole(self) -> dict[str, Any]:
        """All choices."""
        return self._chunks.whole(self._choices)
