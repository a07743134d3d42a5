"""Answers for this Mac's screen and commands: its own, or those of the Mac that leads the model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Final

import msgspec
from aiohttp import web

from core.errors import MaclusterError
from core.events import PromptLogprobs, RequestDone, RequestStarted, TokenEvent
from core.node.answers.answer_record import new_request_id
from core.node.answers.answer_stream import Said
from core.node.answers.answers import Answers
from core.node.base.context import NodeContext
from core.node.base.local_server import BEGUN, body_of
from core.node.public_api.api_answers import ApiAnswers, LedModel
from core.requests.answers import AnswerId, ChatRequest, RequestAccepted

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

    async def chat_attended(self, request: web.Request) -> web.StreamResponse:
        return await self._attend(request, await self.ask(await body_of(request, ChatRequest)))

    async def go_on_attended(self, request: web.Request) -> web.StreamResponse:
        return await self._attend(request, await self._answers.go_on(await body_of(request, AnswerId)))

    async def _attend(self, request: web.Request, accepted: RequestAccepted) -> web.StreamResponse:
        """A reply that lasts as long as the answer, which is cancelled if the client is gone before."""
        reply = web.StreamResponse(status=BEGUN, headers={"Content-Type": "text/event-stream"})
        with suppress(ConnectionError):
            await reply.prepare(request)
            await reply.write(b"data: " + msgspec.json.encode(accepted) + b"\n\n")
        await self.attend(accepted.request_id, lambda: request.transport is None or request.transport.is_closing())
        return reply

    async def attend(self, request_id: str, is_gone: Callable[[], bool]) -> None:
        """Wait until the answer ends; cancel it if the client is gone before."""
        while request_id in self._bus.now.running:
            if is_gone():
                self.cancel(request_id)
                return
            await asyncio.sleep(LOOK_S)

    async def _relay(self, request: ChatRequest, led: LedModel) -> RequestAccepted:
        request_id, events = new_request_id(), led.answers.follow(request)
        first = asyncio.ensure_future(anext(events))
        try:
            await asyncio.wait({first}, timeout=QUEUED_S)
        except asyncio.CancelledError:  # the client is gone without the id
            first.cancel()
            raise
        accepted = RequestAccepted(request_id=request_id, prompt_tokens=_counted(first.result()) if first.done() else 0)
        self._bus.publish(RequestStarted(request_id=request_id, prompt_tokens=accepted.prompt_tokens))
        following = self._follow(request_id, first, events)
        self._relayed[request_id] = self._tasks.spawn("An answer of another Mac", following)
        await asyncio.sleep(0)  # once it has begun, it ends with a RequestDone
        return accepted

    async def _follow(self, request_id: str, first: asyncio.Future[Said], events: AsyncGenerator[Said, None]) -> None:
        tokens, prompt_tokens = 0, 0
        problem = done = None
        try:
            async with aclosing(events):
                prompt_tokens = _counted(await first)
                async for said in events:
                    match said:
                        case TokenEvent() | PromptLogprobs():
                            self._bus.publish(msgspec.structs.replace(said, request_id=request_id))
                            tokens += isinstance(said, TokenEvent)
                        case RequestDone():
                            done = msgspec.structs.replace(said, request_id=request_id)
        except MaclusterError as error:
            problem = error.problem
        finally:
            del self._relayed[request_id]
            cut = RequestDone(
                request_id=request_id,
                finish_reason="error" if problem else "cancelled",
                prompt_tokens=prompt_tokens,
                tokens=tokens,
                problem=problem,
            )
            self._bus.publish(done or cut)


def _counted(said: Said) -> int:
    return said.prompt_tokens if isinstance(said, RequestAccepted) else 0
