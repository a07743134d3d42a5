"""OpenAI's `/v1/chat/completions` and `/v1/completions`."""

from __future__ import annotations

import secrets
import time

from aiohttp import web

from core.node.public_api.answer_so_far import AnswerChoice
from core.node.public_api.api_answers import ApiAnswers, LedModel
from core.node.public_api.chat_replies import ChatReply
from core.node.public_api.chat_request import ChatCompletion
from core.node.public_api.completions_replies import CompletionReply, TextChoice
from core.node.public_api.completions_request import Prompt, TextCompletion
from core.node.public_api.http_bodies import WATCH, read_body
from core.node.public_api.model_list import Models
from core.node.public_api.openai_encoder import OpenAiEncoder
from core.node.public_api.send_reply import send_reply


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
        choices = [AnswerChoice(index) for index in range(asked.n)]
        encoder = OpenAiEncoder(reply, choices, reports_usage=bool(asked.stream_options.include_usage))
        events = self._answers.events([asked.request()] * asked.n, model, request[WATCH])
        return await send_reply(request, encoder, events, streams=asked.stream)

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        asked = await read_body(request, TextCompletion)
        model = self._models.find(asked.model)
        prompts = asked.prompts()
        wanted = asked.requests(prompts)
        echoed = [await self._text(prompt, model) if asked.echo else "" for prompt in prompts]
        choices = [
            TextChoice(index, echoed=echoed[index // asked.n], is_answered=asked.max_tokens != 0)
            for index in range(len(wanted))
        ]
        reply = CompletionReply(
            id=f"cmpl-{secrets.token_hex(12)}", model=asked.model or model.name, created=int(time.time()), n=asked.n
        )
        encoder = OpenAiEncoder(reply, choices, reports_usage=bool(asked.stream_options.include_usage))
        events = self._answers.events(wanted, model, request[WATCH])
        return await send_reply(request, encoder, events, streams=asked.stream)

    async def _text(self, prompt: Prompt, model: LedModel) -> str:
        return prompt if isinstance(prompt, str) else await self._answers.text_of(prompt, model)
