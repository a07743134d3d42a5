"""Messages as Anthropic's clients send them: what is asked, run, and answered whole or as it comes."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Awaitable, Callable

from aiohttp import web

from core.errors import Busy, MaclusterError
from core.node.public_api.anthropic_replies import MessageEncoder, MessageReply, message_error, message_error_of
from core.node.public_api.anthropic_request import Messages
from core.node.public_api.api_answers import ApiAnswers
from core.node.public_api.chat_replies import RETRY_S, status
from core.node.public_api.http_bodies import WATCH, json_reply, read_body
from core.node.public_api.model_list import Models
from core.node.public_api.send_reply import send_reply

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class AnthropicHandlers:
    """`POST /v1/messages` and `POST /v1/messages/count_tokens`."""

    def __init__(self, answering: ApiAnswers, models: Models) -> None:
        self._answering, self._models = answering, models

    def routes(self) -> list[web.RouteDef]:
        """What is answered here."""
        return [
            web.post("/v1/messages", _in_its_form(self._answer)),
            web.post("/v1/messages/count_tokens", _in_its_form(self._count)),
        ]

    async def _count(self, request: web.Request) -> web.StreamResponse:
        asked = await read_body(request, Messages)
        model = self._models.find(asked.model) or self._answering.model()
        return json_reply({"input_tokens": await self._answering.count(asked.request(), model)})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked = await read_body(request, Messages)
        model = self._models.find(asked.model)
        if model is None:
            return json_reply(message_error("not_found_error", self._models.unknown(asked.model)), 404)
        form = MessageEncoder(MessageReply(id=f"msg_{secrets.token_hex(12)}", model=asked.model))
        events = self._answering.events([asked.request()], model, request[WATCH])
        return await send_reply(request, form, events, streams=asked.stream)


def _in_its_form(handler: _Handler) -> _Handler:
    """Errors as Anthropic's clients read them."""

    @functools.wraps(handler)
    async def answered(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except MaclusterError as error:
            reply = json_reply(message_error_of(error), status(error))
            if isinstance(error, Busy):
                reply.headers["Retry-After"] = str(RETRY_S)
            return reply

    return answered
