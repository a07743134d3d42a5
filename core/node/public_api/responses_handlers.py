"""`responses`: what is asked, run, answered whole or as it comes, and kept to be gone on with."""

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
    """`POST /v1/responses`, and `GET` and `DELETE` of one that is kept."""

    def __init__(self, answering: ApiAnswers, models: Models) -> None:
        self._answering, self._models = answering, models
        self._stored = StoredResponses()

    def routes(self) -> list[web.RouteDef]:
        """What is answered here."""
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
        if model is None:
            return refused(404, self._models.unknown(asked.model), "model_not_found")
        said = asked.said()
        if asked.previous_response_id:
            before = self._stored.find(request[OWNER], asked.previous_response_id)
            if before is None:
                return _unknown(asked.previous_response_id)
            said = [*before.said, *said]
        reply = ResponseReply(
            id=f"resp_{secrets.token_hex(24)}",
            model=asked.model or model.name,
            created=int(time.time()),
            asked=asked,
            tools=msgspec.json.decode(await request.read()).get("tools") or [],
        )
        form = ResponseEncoder(reply, partial(self._keep, request[OWNER], asked, said))
        events = self._answering.events([asked.request(said)], model, request[WATCH])
        return await send_reply(request, form, events, streams=asked.stream)

    def _keep(self, owner: str, asked: ResponseBody, said: list[Message], body: dict[str, Any], of: Message) -> None:
        if asked.store is not False:
            self._stored.keep(owner, body, (*said, of))


def _unknown(name: str) -> web.Response:
    what = f"There is no response {name!r}: they are kept in memory, the newest alone, until the node ends."
    return refused(404, what)
