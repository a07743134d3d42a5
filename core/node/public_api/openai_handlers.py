"""OpenAI's `/v1/chat/completions` and `/v1/completions`."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Final

from aiohttp import web

from core.errors import MaclusterError
from core.node.answers.answer_stream import Said
from core.node.base.large_bodies import off_loop
from core.node.public_api.api_answers import ApiAnswers, LedModel
from core.node.public_api.api_errors import openai_error
from core.node.public_api.chat_replies import ChatReply
from core.node.public_api.chat_request import ChatCompletion
from core.node.public_api.completions_replies import CompletionReply, TextChoice
from core.node.public_api.completions_request import Prompt, TextCompletion
from core.node.public_api.http_bodies import SIZE, WATCH, event, read_body
from core.node.public_api.model_list import Models
from core.node.public_api.send_reply import send_reply

_STILL_THERE: Final = b": still there\n\n"  # a comment, which clients skip
_DONE: Final = b"data: [DONE]\n\n"


class OpenAiHandlers:
    """`POST /v1/chat/completions` and `POST /v1/completions`."""

    def __init__(self, answers: ApiAnswers, models: Models) -> None:
        self._answers, self._models = answers, models

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/v1/chat/completions", self._chat), web.post("/v1/completions", self._complete)]

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        asked = await read_body(request, ChatCompletion)
        model = self._models.find(asked.model)
        reply = ChatReply(id=f"chatcmpl-{secrets.token_hex(12)}", model=model.name, created=int(time.time()))
        choices = [TextChoice(index) for index in range(asked.n)]
        encoder = OpenAiEncoder(reply, choices, reports_usage=bool(asked.stream_options.include_usage))
        wanted = await off_loop(request[SIZE], asked.request)
        events = self._answers.events([wanted] * asked.n, model, request[WATCH])
        return await send_reply(request, encoder, events, streams=asked.stream)

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        asked = await read_body(request, TextCompletion)
        model = self._models.find(asked.model)
        prompts = await off_loop(request[SIZE], asked.prompts)
        wanted = await off_loop(request[SIZE], partial(asked.requests, prompts))
        echoed = [await self._text(prompt, model) if asked.echo else "" for prompt in prompts]
        choices = [
            TextChoice(index, echoed=echoed[index // asked.n], is_answered=asked.max_tokens != 0)
            for index in range(len(wanted))
        ]
        name, created = f"cmpl-{secrets.token_hex(12)}", int(time.time())
        reply = CompletionReply(id=name, model=asked.model or model.name, created=created, n=asked.n)
        encoder = OpenAiEncoder(reply, choices, reports_usage=bool(asked.stream_options.include_usage))
        events = self._answers.events(wanted, model, request[WATCH])
        return await send_reply(request, encoder, events, streams=asked.stream)

    async def _text(self, prompt: Prompt, model: LedModel) -> str:
        return prompt if isinstance(prompt, str) else await self._answers.text_of(prompt, model)


class OpenAiEncoder:
    """The `ReplyEncoder` of both completions APIs: chunks of choices, then the usage."""

    has_comments: ClassVar = True

    def __init__(
        self, reply: ChatReply | CompletionReply, choices: Sequence[TextChoice], *, reports_usage: bool
    ) -> None:
        self._reply, self._choices, self._reports_usage = reply, choices, reports_usage

    def take(self, index: int, said: Said) -> list[bytes]:
        choice = self._choices[index]
        choice.take(said)
        piece = self._reply.piece(choice, said)
        return [event(piece)] if piece else []

    def beginning(self) -> list[bytes]:
        return [event(begun) for choice in self._choices if (begun := self._reply.beginning(choice))]

    def still_there(self) -> bytes:
        return _STILL_THERE

    def failed(self, error: MaclusterError) -> bytes:
        return event(openai_error(error))

    def ending(self) -> list[bytes]:
        return [*([event(self._reply.ending(self._choices))] if self._reports_usage else []), _DONE]

    def whole(self) -> dict[str, Any]:
        return self._reply.whole(self._choices)
