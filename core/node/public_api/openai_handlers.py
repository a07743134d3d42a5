"""Chat completions: what is asked, run, and answered whole or as it comes."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator
from typing import Any

from aiohttp import web

from core.errors import MaclusterError
from core.node.public_api.answering import Answering, Came
from core.node.public_api.bodies import KEEP_ALIVE, WATCH, EventStream, json_reply, read_body, refused
from core.node.public_api.choice import Choice
from core.node.public_api.models import Models
from core.node.public_api.openai_chat import ChatCompletion
from core.node.public_api.openai_replies import Reply, error_body
from core.requests import RequestAccepted


class OpenAiHandlers:
    """`POST /v1/chat/completions`."""

    def __init__(self, answering: Answering, models: Models) -> None:
        self._answering, self._models = answering, models

    def routes(self) -> list[web.RouteDef]:
        """What is answered here."""
        return [web.post("/v1/chat/completions", self._answer)]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked = await read_body(request, ChatCompletion)
        model = self._models.loaded()
        if not self._models.has(asked.model):
            return refused(404, f"The model {asked.model!r} is not loaded; {model} is.", "model_not_found")
        reply = Reply(id=f"chatcmpl-{secrets.token_hex(12)}", model=model, created=int(time.time()))
        choices = [Choice(index) for index in range(asked.n)]
        events = self._answering.events([asked.request()] * asked.n, request[WATCH])
        try:
            if asked.stream:
                return await _stream(request, asked, reply, choices, events)
            async for came in events:
                if came:
                    choices[came[0]].take(came[1])
            return json_reply(reply.whole(choices))
        finally:
            await events.aclose()


async def _stream(
    request: web.Request,
    asked: ChatCompletion,
    reply: Reply,
    choices: list[Choice],
    events: AsyncGenerator[Came | None, None],
) -> web.StreamResponse:
    came = await anext(events)
    while came and isinstance(came[1], RequestAccepted):  # what is wrong with the request has a status of its own
        choices[came[0]].take(came[1])
        came = await anext(events)
    stream = EventStream(request)
    async with stream:
        for choice in choices:
            await stream.send(reply.beginning(choice.index))
        try:
            while True:
                piece = _piece(reply, choices, came) if came else None
                if piece:
                    await stream.send(piece)
                else:
                    await stream.keep_alive(KEEP_ALIVE)
                came = await anext(events)
        except StopAsyncIteration:
            pass
        except MaclusterError as error:
            await stream.send(error_body(error.problem))
            return stream.response
        if asked.stream_options.include_usage:
            await stream.send(reply.ending(choices))
        await stream.write(b"data: [DONE]\n\n")
    return stream.response


def _piece(reply: Reply, choices: list[Choice], came: Came) -> dict[str, Any] | None:
    choice = choices[came[0]]
    choice.take(came[1])
    return reply.piece(choice, came[1])
