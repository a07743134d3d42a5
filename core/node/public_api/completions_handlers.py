"""Completions: what is asked, run, and answered whole or as it comes."""

from __future__ import annotations

import secrets
import time

from aiohttp import web

from core.node.public_api.api_answers import ApiAnswers, LedModel
from core.node.public_api.completions_replies import CompletionReply, TextChoice
from core.node.public_api.completions_request import Prompt, TextCompletion
from core.node.public_api.http_bodies import WATCH, read_body, refused
from core.node.public_api.model_list import Models
from core.node.public_api.openai_encoder import OpenAiEncoder
from core.node.public_api.send_reply import send_reply


class CompletionsHandlers:
    """`POST /v1/completions`."""

    def __init__(self, answering: ApiAnswers, models: Models) -> None:
        self._answering, self._models = answering, models

    def routes(self) -> list[web.RouteDef]:
        """What is answered here."""
        return [web.post("/v1/completions", self._answer)]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked = await read_body(request, TextCompletion)
        model = self._models.find(asked.model)
        if model is None:
            return refused(404, self._models.unknown(asked.model), "model_not_found")
        prompts = asked.prompts()
        wanted = asked.requests(prompts)
        echoed = [await self._text(prompt, model) if asked.echo else "" for prompt in prompts]
        choices = [TextChoice(index, echoed=echoed[index // asked.n]) for index in range(len(wanted))]
        reply = CompletionReply(
            id=f"cmpl-{secrets.token_hex(12)}", model=asked.model or model.name, created=int(time.time()), n=asked.n
        )
        form = OpenAiEncoder(reply, choices, reports_usage=asked.stream_options.include_usage)
        return await send_reply(
            request, form, self._answering.events(wanted, model, request[WATCH]), streams=asked.stream
        )

    async def _text(self, prompt: Prompt, of: LedModel) -> str:
        return prompt if isinstance(prompt, str) else await self._answering.text_of(prompt, of)
