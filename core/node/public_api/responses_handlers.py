"""OpenAI's `/v1/responses`: answers that are kept in memory, so that a later request can continue one."""

from __future__ import annotations

import secrets
import time
from functools import partial
from typing import Any

import msgspec
from aiohttp import web

from core.node.public_api.api_answers import ApiAnswers
from core.node.public_api.http_bodies import OWNER, WATCH, json_reply, read_body, refused
from core.node.public_api.model_list import Models
from core.node.public_api.responses_replies import ResponseEncoder, ResponseReply
from core.node.public_api.responses_request import ResponseBody
from core.node.public_api.send_reply import send_reply
from core.node.public_api.stored_responses import StoredResponses
from core.requests.answers import Message


class ResponsesHandlers:
    """`POST /v1/responses`, and `GET` and `DELETE` of a stored response."""

    def __init__(self, answers: ApiAnswers, models: Models) -> None:
        self._answers, self._models = answers, models
        self._stored = StoredResponses()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/responses", self._answer),
            web.get("/v1/responses/{id}", self._show),
            web.delete("/v1/responses/{id}", self._forget),
        ]

    async def _show(self, request: web.Request) -> web.Response:
        found = self._stored.find(request[OWNER], request.match_info["id"])
        return json_reply(found.body) if found else _unknown(request.match_info["id"])

    async def _forget(self, request: web.Request) -> web.Response:
        name = request.match_info["id"]
        if not self._stored.forget(request[OWNER], name):
            return _unknown(name)
        return json_reply({"id": name, "object": "response", "deleted": True})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked = await read_body(request, ResponseBody)
        model = self._models.find(asked.model)
        messages = asked.messages()
        if asked.previous_response_id:
            before = self._stored.find(request[OWNER], asked.previous_response_id)
            if before is None:
                return _unknown(asked.previous_response_id)
            messages = [*before.messages, *messages]
        reply = ResponseReply(
            id=f"resp_{secrets.token_hex(24)}",
            model=asked.model or model.name,
            created=int(time.time()),
            asked=asked,
            tools=msgspec.json.decode(await request.read()).get("tools") or [],
        )
        store = partial(self._store, request[OWNER], messages) if asked.store is not False else _drop
        events = self._answers.events([asked.request(messages)], model, request[WATCH])
        return await send_reply(request, ResponseEncoder(reply, store), events, streams=asked.stream)

    def _store(self, owner: str, messages: list[Message], body: dict[str, Any], answer: Message) -> None:
        self._stored.keep(owner, body, (*messages, answer))


def _drop(body: dict[str, Any], answer: Message) -> None:
    """Store nothing, as the client requested."""


def _unknown(name: str) -> web.Response:
    what = f"There is no response {name!r}. Only the newest are kept, in memory, until macluster quits."
    return refused(404, what)
