"""Answers for this Mac's screen and commands: its own, or those of the Mac that leads the model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

import msgspec

from core.errors import MaclusterError
from core.events import PromptLogprobs, RequestDone, RequestStarted, TokenEvent
from core.node.answers.answer_record import new_request_id
from core.node.answers.answer_stream import Said
from core.node.answers.answers import Answers
from core.node.base.context import NodeContext
from core.node.public_api.api_answers import ApiAnswers, LedModel
from core.requests.answers import ChatRequest, RequestAccepted

LOOK_S: Final = 0.1
QUEUED_S: Final = 10.0  # a request without a row by then is accepted before its prompt is counted


class LocalChat:
    """Begins and cancels answers, whose events follow on the bus, whichever Mac writes them."""

    def __init__(self, node: NodeContext, answers: Answers, answering: ApiAnswers) -> None:
        self._bus, self._tasks, self._answers, self._answering = node.bus, node.tasks, answers, answering
        self._relayed: dict[str, asyncio.Task[None]] = {}

    async def ask(self, request: ChatRequest) -> RequestAccepted:
        """Raises as `Answers.ask`, or what the Mac that leads refuses."""
        led = self._answering.model()
        return await (self._answers.ask(request) if led.answers is self._answers else self._relay(request, led))

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

    async def _relay(self, request: ChatRequest, led: LedModel) -> RequestAccepted:
        request_id = new_request_id()
        accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        work = self._follow(request_id, led.answers.follow(request), accepted)
        task = self._relayed[request_id] = self._tasks.spawn("An answer of another Mac", work)
        task.add_done_callback(lambda _: self._relayed.pop(request_id, None))
        try:
            await asyncio.wait({accepted}, timeout=QUEUED_S)
        except asyncio.CancelledError:  # the client is gone without the id
            task.cancel()
            raise
        self._begin(request_id, accepted, 0)
        return RequestAccepted(request_id=request_id, prompt_tokens=accepted.result())

    def _begin(self, request_id: str, accepted: asyncio.Future[int], prompt_tokens: int) -> None:
        if not accepted.done():
            accepted.set_result(prompt_tokens)
            self._bus.publish(RequestStarted(request_id=request_id, prompt_tokens=prompt_tokens))

    async def _follow(self, request_id: str, events: AsyncGenerator[Said, None], accepted: asyncio.Future[int]) -> None:
        done = RequestDone(request_id=request_id, finish_reason="cancelled", prompt_tokens=0, tokens=0)
        change = msgspec.structs.replace
        try:
            async with aclosing(events):
                async for said in events:
                    match said:
                        case RequestAccepted(prompt_tokens=prompt_tokens):
                            self._begin(request_id, accepted, prompt_tokens)
                            done = change(done, prompt_tokens=prompt_tokens)
                        case TokenEvent(index=index):
                            self._bus.publish(change(said, request_id=request_id))
                            done = change(done, tokens=index + 1)
                        case PromptLogprobs():
                            self._bus.publish(change(said, request_id=request_id))
                        case RequestDone():
                            done = change(said, request_id=request_id)
        except MaclusterError as error:
            if not accepted.done():
                accepted.set_exception(error)
            done = change(done, finish_reason="error", problem=error.problem)
        finally:
            accepted.cancel()  # only after a defect
            if request_id in self._bus.now.running:
                self._bus.publish(done)
