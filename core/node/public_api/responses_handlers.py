"""OpenAI's `/v1/responses`: answers that are kept in memory, so that a later request can continue one."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
from aiohttp import web

from core.node.base.large_bodies import off_loop
from core.node.base.local_server import json_reply
from core.node.public_api.api_answers import ApiAnswers
from core.node.public_api.http_bodies import OWNER, SIZE, WATCH, read_body, refused
from core.node.public_api.model_list import Models
from core.node.public_api.responses_replies import ResponseEncoder, items_of
from core.node.public_api.responses_request import ResponseBody
from core.node.public_api.send_reply import send_reply
from core.requests.answers import ChatRequest, Message

MAX_RESPONSES: Final = 256
MAX_BYTES: Final = 64 << 20


class StoredResponse(NamedTuple):
    """A response that can be continued."""

    body: dict[str, Any]
    messages: tuple[Message, ...]  # the conversation up to the answer, which is the last
    size: int  # bytes


class StoredResponses:
    """Stored responses by owner and id."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], StoredResponse] = OrderedDict()
        self._bytes = 0

    def keep(self, owner: str, body: dict[str, Any], messages: tuple[Message, ...]) -> None:
        """Store one, dropping the oldest; one larger than a quarter of `MAX_BYTES` is not stored."""
        size = len(msgspec.msgpack.encode((body, messages)))
        if size > MAX_BYTES // 4:
            return
        self._kept[owner, body["id"]] = StoredResponse(body, messages, size)
        self._bytes += size
        while len(self._kept) > MAX_RESPONSES or self._bytes > MAX_BYTES:
            self._bytes -= self._kept.popitem(last=False)[1].size

    def find(self, owner: str, name: str) -> StoredResponse | None:
        return self._kept.get((owner, name))

    def forget(self, owner: str, name: str) -> bool:
        found = self._kept.pop((owner, name), None)
        self._bytes -= found.size if found else 0
        return found is not None


class ResponsesHandlers:
    """`POST /v1/responses`, token counts, and stored responses."""

    def __init__(self, answers: ApiAnswers, models: Models) -> None:
        self._answers, self._models = answers, models
        self._stored = StoredResponses()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/responses", self._answer),
            web.get("/v1/responses/{id}", self._show),
            web.delete("/v1/responses/{id}", self._forget),
            web.post("/v1/responses/{id}/cancel", self._show),  # what is stored has ended
            web.get("/v1/responses/{id}/input_items", self._input),
            web.post("/v1/responses/input_tokens", self._count),
        ]

    async def _show(self, request: web.Request) -> web.Response:
        found = self._stored.find(request[OWNER], request.match_info["id"])
        return json_reply(found.body) if found else _unknown(request.match_info["id"])

    async def _forget(self, request: web.Request) -> web.Response:
        name = request.match_info["id"]
        if not self._stored.forget(request[OWNER], name):
            return _unknown(name)
        return json_reply({"id": name, "object": "response", "deleted": True})

    async def _input(self, request: web.Request) -> web.Response:
        found = self._stored.find(request[OWNER], request.match_info["id"])
        if found is None:
            return _unknown(request.match_info["id"])
        items = [item for number, message in enumerate(found.messages[:-1]) for item in items_of(message, number)]
        if request.query.get("order") != "asc":
            items.reverse()
        ends = {"first_id": items[0]["id"], "last_id": items[-1]["id"]} if items else {}
        return json_reply({"object": "list", "data": items, "has_more": False, **ends})

    async def _count(self, request: web.Request) -> web.Response:
        asked = await read_body(request, ResponseBody)
        built = await off_loop(request[SIZE], partial(self._built, request[OWNER], asked))
        if built is None:
            return _unknown(asked.previous_response_id)
        tokens = await self._answers.count(built[1], self._models.find(asked.model))
        return json_reply({"object": "response.input_tokens", "input_tokens": tokens})

    def _built(self, owner: str, asked: ResponseBody) -> tuple[list[Message], ChatRequest] | None:
        """The messages so far, and the request; None if the response before them is unknown. Raises UsageError."""
        before = self._stored.find(owner, asked.previous_response_id) if asked.previous_response_id else None
        if asked.previous_response_id and not before:
            return None
        messages = [*(before.messages if before else ()), *asked.messages()]
        return messages, asked.request(messages)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked = await read_body(request, ResponseBody)
        model = self._models.find(asked.model)
        built = await off_loop(request[SIZE], partial(self._built, request[OWNER], asked))
        if built is None:
            return _unknown(asked.previous_response_id)
        messages, wanted = built
        store = partial(self._store, request[OWNER], messages) if asked.store is not False else None
        encoder = ResponseEncoder(asked.model or model.name, asked, store)
        events = self._answers.events([wanted], model, request[WATCH])
        return await send_reply(request, encoder, events, streams=asked.stream)

    def _store(self, owner: str, messages: list[Message], body: dict[str, Any], answer: Message) -> None:
        self._stored.keep(owner, body, (*messages, answer))


def _unknown(name: str | None) -> web.Response:
    what = f"There is no response {name!r}. Only the newest are kept, in memory, until macluster quits."
    return refused(404, what)
