"""Chat completions: what is asked, run, and answered whole or as it comes."""

from __future__ import annotations

import secrets
import time

from aiohttp import web

from core.node.public_api.answering import Answering
from core.node.public_api.bodies import WATCH, read_body, refused
from core.node.public_api.choice import AnswerChoice
from core.node.public_api.models import Models
from core.node.public_api.openai_chat import ChatCompletion
from core.node.public_api.openai_form import OpenAiForm
from core.node.public_api.openai_replies import Reply
from core.node.public_api.replying import replied


class OpenAiHandlers:
    """`POST /v1/chat/completions`."""

    def __init__(self, answering: Answering, models: Models) -> None:
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
        form = OpenAiForm(reply, choices, reports_usage=asked.stream_options.include_usage)
        events = self._answering.events([asked.request()] * asked.n, model, request[WATCH])
        return await replied(request, form, events, streams=asked.stream)
