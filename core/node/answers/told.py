"""What a program that asks for an answer is told of it: every token, and the parts of the answer that it completes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Protocol

from core.answer_parts import AnswerPart, TextPart
from core.events import RequestDone, TokenEvent
from core.requests import RequestAccepted

Said = RequestAccepted | TokenEvent | AnswerPart | RequestDone


class Reader(Protocol):
    """Text in, parts out."""

    async def read(self, text: str) -> tuple[AnswerPart, ...]:
        """What the text completes."""

    async def end(self, text: str, is_whole: bool) -> tuple[AnswerPart, ...]:
        """The last text, and what was held back; `is_whole`: for the model ended it."""

    def drop(self) -> None:
        """Nobody wants any more of it."""


class PlainReader:
    """All of it is text."""

    async def read(self, text: str) -> tuple[AnswerPart, ...]:
        """That text."""
        return (TextPart(text),) if text else ()

    async def end(self, text: str, is_whole: bool) -> tuple[AnswerPart, ...]:
        """That text."""
        return await self.read(text)

    def drop(self) -> None:
        """There is nothing to end."""


async def told(events: AsyncIterator[TokenEvent | RequestDone], reader: Reader) -> AsyncGenerator[Said, None]:
    """Each token, behind it the parts that it completes, and last how the answer ended. Raises BadModel."""
    try:
        async for event in events:
            if isinstance(event, TokenEvent):
                yield event
                parts = await reader.read(event.text)
            else:
                parts = await reader.end(event.text, event.finish_reason == "stop")
            for part in parts:
                yield part
            if isinstance(event, RequestDone):
                yield event
    finally:
        reader.drop()
