"""Encodes replies of OpenAI's two completions APIs: chunks of choices, then the usage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from core.errors import MaclusterError
from core.node.answers.answer_stream import Said
from core.node.public_api.answer_so_far import AnswerChoice
from core.node.public_api.api_errors import openai_error
from core.node.public_api.http_bodies import event

_STILL_THERE: Final = b": still there\n\n"  # a comment, which clients skip
_DONE: Final = b"data: [DONE]\n\n"

_C = TypeVar("_C", bound=AnswerChoice)
_Of = TypeVar("_Of", bound=AnswerChoice, contravariant=True)


class Chunks(Protocol[_Of]):
    """The bodies and chunks of one of the two APIs."""

    def whole(self, choices: Sequence[_Of]) -> dict[str, Any]:
        """The body of a reply that does not stream."""

    def beginning(self, choice: _Of) -> dict[str, Any] | None:
        """The first chunk of a choice, if it has one."""

    def piece(self, choice: _Of, said: Said) -> dict[str, Any] | None:
        """The chunk for `said`, which `choice` has taken."""

    def ending(self, choices: Sequence[_Of]) -> dict[str, Any]:
        """The chunk with the usage."""


class OpenAiEncoder(Generic[_C]):
    """The `ReplyEncoder` of both completions APIs."""

    has_comments: ClassVar = True

    def __init__(self, chunks: Chunks[_C], choices: Sequence[_C], *, reports_usage: bool) -> None:
        self._chunks, self._choices, self._reports_usage = chunks, choices, reports_usage

    def take(self, index: int, said: Said) -> list[bytes]:
        choice = self._choices[index]
        choice.take(said)
        piece = self._chunks.piece(choice, said)
        return [event(piece)] if piece else []

    def beginning(self) -> list[bytes]:
        return [event(begun) for choice in self._choices if (begun := self._chunks.beginning(choice))]

    def still_there(self) -> bytes:
        return _STILL_THERE

    def failed(self, error: MaclusterError) -> bytes:
        return event(openai_error(error))

    def ending(self) -> list[bytes]:
        return [*([event(self._chunks.ending(self._choices))] if self._reports_usage else []), _DONE]

    def whole(self) -> dict[str, Any]:
        return self._chunks.whole(self._choices)
