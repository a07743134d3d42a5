"""The stream of an answer to a program, and its end when the text can't be read as parts."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from core.answer_parts import AnswerPart, TextPart, ToolCall
from core.errors import BadModel, NodeError, Problem
from core.events import FinishReason, RequestDone, TokenEvent
from core.node.answers.answer_stream import Said, answer_stream

LOST = NodeError("A Mac is gone.").problem


class Reader:
    """Reads each text as a text part; "call" is a call, and "fail" can't be read."""

    def __init__(self) -> None:
        self.dropped = 0

    async def read(self, text: str) -> tuple[AnswerPart, ...]:
        if text == "fail":
            raise BadModel("It was ended.")
        return (ToolCall(id="a", name="f", arguments="{}") if text == "call" else TextPart(text),)

    async def end(self, text: str, is_whole: bool) -> tuple[AnswerPart, ...]:
        return await self.read(f"{text}, {is_whole}")

    def drop(self) -> None:
        self.dropped += 1


class Answer:
    """An answer with these `texts`; it ends by itself, by a problem, or when it is stopped."""

    def __init__(self, *texts: str, reason: FinishReason = "stop", problem: Problem | None = None) -> None:
        self._texts, self._reason, self._problem = texts, reason, problem
        self.reader, self.stops = Reader(), 0

    async def _events(self) -> AsyncIterator[TokenEvent | RequestDone]:
        for index, text in enumerate(self._texts):
            if self.stops:
                break
            yield TokenEvent(request_id="r", index=index, token=index, text=text)
        reason = "cancelled" if self.stops else self._reason
        yield RequestDone(
            request_id="r", finish_reason=reason, prompt_tokens=1, tokens=1, text="end", problem=self._problem
        )

    def stop(self) -> None:
        self.stops += 1

    async def answer_stream(self, one_call: bool = False) -> list[Said]:
        said = [each async for each in answer_stream(self._events(), self.reader, self.stop, one_call=one_call)]
        assert self.reader.dropped == 1
        assert isinstance(said.pop(), RequestDone)
        return [each for each in said if not isinstance(each, TokenEvent)]


async def test_it_ends_with_what_was_held_back_and_behind_the_first_call_if_that_is_all_that_is_wanted() -> None:
    assert await Answer("a").answer_stream() == [TextPart("a"), TextPart("end, True")]
    assert await Answer("a", reason="length").answer_stream() == [TextPart("a"), TextPart("end, False")]
    (call,) = await (answer := Answer("call", "call")).answer_stream(one_call=True)
    assert isinstance(call, ToolCall)
    assert answer.stops == 1
    assert len(await Answer("call", "call").answer_stream()) == 3


async def test_the_reason_of_the_end_is_told_before_that_of_a_reader_that_ended_with_it() -> None:
    assert await Answer("a", problem=LOST).answer_stream() == [TextPart("a")]
    assert await (answer := Answer("fail", problem=LOST)).answer_stream() == []
    assert answer.stops == 1
    with pytest.raises(BadModel, match="It was ended"):
        await (answer := Answer("fail")).answer_stream()
    assert (answer.stops, answer.reader.dropped) == (1, 1)
