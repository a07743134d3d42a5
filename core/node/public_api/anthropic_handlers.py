"""Anthropic's `/v1/messages` and `/v1/messages/count_tokens`."""

from __future__ import annotations

import secrets

from aiohttp import web

from core.node.base.local_server import json_reply
from core.node.public_api.anthropic_replies import MessageEncoder, MessageReply
from core.node.public_api.anthropic_request import Messages
from core.node.public_api.api_answers import ApiAnswers
from core.node.public_api.api_errors import UnknownModel
from core.node.public_api.http_bodies import WATCH, off_loop, read_body
from core.node.public_api.model_list import Models
from core.node.public_api.send_reply import send_reply


class AnthropicHandlers:
    """`POST /v1/messages` and `POST /v1/messages/count_tokens`."""

    def __init__(self, answers: ApiAnswers, models: Models) -> None:
        self._answers, self._models = answers, models

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/v1/messages", self._answer), web.post("/v1/messages/count_tokens", self._count)]

    async def _count(self, request: web.Request) -> web.StreamResponse:
        asked = await read_body(request, Messages)
        try:
            model = self._models.find(asked.model)
        except UnknownModel:
            model = self._answers.model()
        wanted = await off_loop(request, asked.request)
        return json_reply({"input_tokens": await self._answers.count(wanted, model)})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked = await read_body(request, Messages)
        model = self._models.find(asked.model)
        encoder = MessageEncoder(MessageReply(id=f"msg_{secrets.token_hex(12)}", model=asked.model))
        wanted = await off_loop(request, asked.request)
        events = self._answers.events([wanted], model, request[WATCH])
        return await send_reply(request, encoder, events, streams=asked.stream)
