"""Answers for this Mac's screen and commands: its own, or those of the Mac that leads the model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

import msgspec

from core.errors import MaclusterError
from core.events import RequestDone, RequestStarted, TokenEvent
from core.node.answers.answer_record import new_request_id
from core.node.answers.answer_stream import Said
from core.node.answers.answers import Answers
from core.node.base.context import NodeContext
from core.node.public_api.api_answers import ApiAnswers, LedModel
from core.requests.answers import ChatRequest, RequestAccepted

LOOK_S: Final = 0.1


class LocalChat:
    """Begins and cancels answers, whose events follow on the bus, whichever Mac writes them."""

    def __init__(self, node: NodeContext, answers: Answers, answering: ApiAnswers) -> None:
        self._bus, self._tasks, self._answers, self._answering = node.bus, node.tasks, answers, answering
        self._relayed: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[str, RequestDone] = {}  # of the same answers, from what has come

    async def ask(self, request: ChatRequest) -> RequestAccepted:
        """Raises NotLoaded; for a model of this Mac as `Answers.ask`."""
        led = self._answering.model()
        return await self._answers.ask(request) if led.answers is self._answers else self._relay(request, led)

    def cancel(self, request_id: str) -> None:
        if task := self._relayed.get(request_id):
            task.cancel()
        else:
            self._answers.cancel(request_id)

    async def attend(self, request_id: str, is_gone: Callable[[], bool]) -> None:
        """Wait until the answer ends; cancel it if the client is gone before."""
        while request_id in self._bus.now.running:
            if is_gone():
                self.cancel(request_id)
                return
            await asyncio.sleep(LOOK_S)

    def _relay(self, request: ChatRequest, led: LedModel) -> RequestAccepted:
        """A refusal comes with the end of the answer: the other Mac may have no row free for long."""
        request_id = new_request_id()
        self._ends[request_id] = RequestDone(
            request_id=request_id, finish_reason="cancelled", prompt_tokens=0, tokens=0
        )
        self._bus.publish(RequestStarted(request_id=request_id, prompt_tokens=0))
        work = self._follow(request_id, led.answers.follow(request))
        task = self._relayed[request_id] = self._tasks.spawn("An answer of another Mac", work)
        task.add_done_callback(lambda _: self._ended(request_id))
        return RequestAccepted(request_id=request_id, prompt_tokens=0)

    async def _follow(self, request_id: str, events: AsyncGenerator[Said, None]) -> None:
        change, ends = msgspec.structs.replace, self._ends
        try:
            async with aclosing(events):
                async for said in events:
                    match said:
                        case RequestAccepted(prompt_tokens=prompt_tokens):
                            ends[request_id] = change(ends[request_id], prompt_tokens=prompt_tokens)
                        case TokenEvent(index=index):
                            ends[request_id] = change(ends[request_id], tokens=index + 1)
                            self._bus.publish(change(said, request_id=request_id))
                        case RequestDone():
                            ends[request_id] = change(said, request_id=request_id)
        except MaclusterError as error:
            ends[request_id] = change(ends[request_id], finish_reason="error", problem=error.problem)

    def _ended(self, request_id: str) -> None:
        del self._relayed[request_id]
        self._bus.publish(self._ends.pop(request_id))
