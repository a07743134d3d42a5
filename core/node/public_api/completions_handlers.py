"""Completions: what is asked, run, and answered whole or as it comes."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator

from aiohttp import web

from core.errors import MaclusterError
from core.node.public_api.answering import Answering, Came
from core.node.public_api.bodies import KEEP_ALIVE, WATCH, EventStream, json_reply, read_body, refused
from core.node.public_api.completions_asked import Prompt, TextCompletion
from core.node.public_api.completions_replies import CompletionReply, TextChoice
from core.node.public_api.models import Models
from core.node.public_api.openai_replies import error_body
from core.requests import RequestAccepted


class CompletionsHandlers:
    """`POST /v1/completions`."""

    def __init__(self, answering: Answering, models: Models) -> None:
        self._answering, self._models = answering, models

    def routes(self) -> list[web.RouteDef]:
        """What is answered here."""
        return [web.post("/v1/completions", self._answer)]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked = await read_body(request, TextCompletion)
        model = self._models.loaded()
        if not self._models.has(asked.model):
            return refused(404, f"The model {asked.model!r} is not loaded; {model} is.", "model_not_found")
        prompts = asked.prompts()
        wanted = asked.requests(prompts)
        echoed = [await self._text(prompt) if asked.echo else "" for prompt in prompts]
        choices = [TextChoice(index, echoed=echoed[index // asked.n]) for index in range(len(wanted))]
        reply = CompletionReply(
            id=f"cmpl-{secrets.token_hex(12)}", model=asked.model or model, created=int(time.time()), n=asked.n
        )
        events = self._answering.events(wanted, request[WATCH])
        try:
            if asked.stream:
                return await _stream(request, asked, reply, choices, events)
            async for came in events:
                if came:
                    choices[came[0]].take(came[1])
            return json_reply(reply.whole(choices))
        finally:
            await events.aclose()

    async def _text(self, prompt: Prompt) -> str:
        return prompt if isinstance(prompt, str) else await self._answering.text_of(prompt)


async def _stream(
    request: web.Request,
    asked: TextCompletion,
    reply: CompletionReply,
    choices: list[TextChoice],
    events: AsyncGenerator[Came | None, None],
) -> web.StreamResponse:
    came = await anext(events)
    while came and isinstance(came[1], RequestAccepted):  # what is wrong with the request has a status of its own
        choices[came[0]].take(came[1])
        came = await anext(events)
    stream = EventStream(request)
    async with stream:
        for choice in choices:
            if begun := reply.beginning(choice):
                await stream.send(begun)
        try:
            while True:
                piece = None
                if came:
                    choice = choices[came[0]]
                    choice.take(came[1])
                    piece = reply.piece(choice, came[1])
                await (stream.send(piece) if piece else stream.keep_alive(KEEP_ALIVE))
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
