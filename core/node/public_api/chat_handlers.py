"""Chat completions: what is asked, run, and answered whole or as it comes."""

from __future__ import annotations

import secrets
import time

from aiohttp import web

from core.node.public_api.answer_so_far import AnswerChoice
from core.node.public_api.api_answers import ApiAnswers
from core.node.public_api.chat_replies import Reply
from core.node.public_api.chat_request import ChatCompletion
from core.node.public_api.http_bodies import WATCH, read_body, refused
from core.node.public_api.model_list import Models
from core.node.public_api.openai_encoder import OpenAiEncoder
from core.node.public_api.send_reply import send_reply


class ChatHandlers:
    """`POST /v1/chat/completions`."""

    def __init__(self, answering: ApiAnswers, models: Models) -> None:
        self._answering, self._models = answering, models

    def routes(self) -> list[web.RouteDef]:
        """What is answered here."""
        return [web.post("/v1/chat/completions", self._answer)]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked = await read_body(request, ChatCompletion)
        model = self._models.find(asked.model)
        if model is None:
            return refused(404, self._models.unknown(asked.model), "model_not_found")
        reply = Reply(id=f"chatcmpl-{secrets.token_hex(12)}", model=model.name, created=int(time.time()))
        choices = [AnswerChoice(index) for index in range(asked.n)]
        form = OpenAiEncoder(reply, choices, reports_usage=asked.stream_options.include_usage)
        events = self._answering.events([asked.request()] * asked.n, model, request[WATCH])
        return await send_reply(request, form, events, streams=asked.stream)
