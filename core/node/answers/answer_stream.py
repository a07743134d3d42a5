"""The events of one answer for the client: every token, and the parts of the answer that it completes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Protocol

from core.answer_parts import AnswerPart, TextPart, ToolCall
from core.errors import BadModel
from core.events import PromptLogprobs, RequestDone, TokenEvent
from core.requests.answers import RequestAccepted

Followed = PromptLogprobs | TokenEvent | RequestDone
Said = RequestAccepted | PromptLogprobs | TokenEvent | AnswerPart | RequestDone


class Reader(Protocol):
    """Turns text into the parts of an answer."""

    async def read(self, text: str) -> tuple[AnswerPart, ...]:
        """The parts that `text` completes."""

    async def end(self, text: str, is_whole: bool) -> tuple[AnswerPart, ...]:
        """The last parts; `is_whole` means that the model ended the answer."""

    def drop(self) -> None:
        """Release it early."""


class PlainReader:
    """Treats all text as one kind of part."""

    async def read(self, text: str) -> tuple[AnswerPart, ...]:
        return (TextPart(text),) if text else ()

    async def end(self, text: str, is_whole: bool) -> tuple[AnswerPart, ...]:
        return await self.read(text)

    def drop(self) -> None: ...


async def answer_stream(
    events: AsyncIterator[Followed], reader: Reader, stop: Callable[[], None], *, one_call: bool
) -> AsyncGenerator[Said, None]:
    """Each token, the parts that it completes, and last how the answer ended. `stop` ends the answer early: after its
    first tool call if `one_call`. Raises BadModel unless the end has a problem.
    """
    is_enough, failure = False, None
    try:
        async for event in events:
            if isinstance(event, PromptLogprobs):
                yield event
                continue
            if isinstance(event, TokenEvent):
                yield event
            parts: tuple[AnswerPart, ...] = ()
            try:
                parts = () if is_enough else await _parts(reader, event)
            except BadModel as error:
                failure = error
                is_enough = True
                stop()
            for part in parts:
                yield part
                if one_call and isinstance(part, ToolCall):
                    is_enough = True
                    stop()
                    break
            if isinstance(event, RequestDone):
                if failure and not event.problem:
                    raise failure
                yield event
    finally:
        reader.drop()


async def _parts(reader: Reader, event: TokenEvent | RequestDone) -> tuple[AnswerPart, ...]:
    if isinstance(event, TokenEvent):
        return await reader.read(event.text)
    if event.problem:  # the tokenizer may be gone with the plan
        return ()
    return await reader.end(event.text, event.finish_reason == "stop")
