"""`responses`: what is asked, run, answered whole or as it comes, and kept to be gone on with."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from aiohttp import web

from core.errors import MaclusterError
from core.node.public_api.answering import Answering, Came
from core.node.public_api.bodies import OWNER, WATCH, EventStream, json_reply, read_body, refused
from core.node.public_api.choice import Choice
from core.node.public_api.models import Models
from core.node.public_api.responses_asked import ResponseBody
from core.node.public_api.responses_replies import ItemEvents, ResponseReply, answer_of, status_of
from core.node.public_api.stored_responses import StoredResponses
from core.requests import Message, RequestAccepted

_Events = AsyncGenerator[Came | None, None]


class ResponsesHandlers:
    """`POST /v1/responses`, and `GET` and `DELETE` of one that is kept."""

    def __init__(self, answering: Answering, models: Models) -> None:
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
        if not self._models.has(asked.model):
            what = f"The model {asked.model!r} is not loaded; {self._models.loaded()} is."
            return refused(404, what, "model_not_found")
        said = asked.said()
        if asked.previous_response_id:
            before = self._stored.find(request[OWNER], asked.previous_response_id)
            if before is None:
                return _unknown(asked.previous_response_id)
            said = [*before.said, *said]
        reply = ResponseReply(
            id=f"resp_{secrets.token_hex(24)}",
            model=asked.model or self._models.loaded(),
            created=int(time.time()),
            asked=asked,
            tools=msgspec.json.decode(await request.read()).get("tools") or [],
        )
        events = self._answering.events([asked.request(said)], request[WATCH])
        run = _Run(reply, said, ItemEvents(asked.custom))
        try:
            if asked.stream:
                return await self._stream(request, run, events)
            async for came in events:
                if came:
                    list(run.take(came))
            return json_reply(self._end(request, run))
        finally:
            await events.aclose()

    async def _stream(self, request: web.Request, run: _Run, events: _Events) -> web.StreamResponse:
        came = await anext(events)
        while came and isinstance(came[1], RequestAccepted):  # what is wrong with the request has a status of its own
            came = await anext(events)
        stream = EventStream(request)
        async with stream:
            for name in ("response.created", "response.in_progress"):
                await _send(stream, run.of_all(name, run.so_far()))
            try:
                while True:
                    for event in run.take(came) if came else ():
                        await _send(stream, event)
                    if stream.is_quiet:
                        await _send(stream, run.of_all("response.in_progress", run.so_far()))
                    came = await anext(events)
            except StopAsyncIteration:
                pass
            except MaclusterError as error:
                await _send(stream, run.of_all("response.failed", run.failed(error)))
                return stream.response
            for event in run.items.close():
                await _send(stream, event)
            body = self._end(request, run)
            await _send(stream, run.of_all(f"response.{body['status']}", body))
        return stream.response

    def _end(self, request: web.Request, run: _Run) -> dict[str, Any]:
        """The whole body, which is kept unless that is not wanted."""
        body = run.whole()
        if run.reply.asked.store is not False:
            self._stored.keep(request[OWNER], body, (*run.said, answer_of(run.choice)))
        return body


class _Run:
    """One response while it is written."""

    def __init__(self, reply: ResponseReply, said: list[Message], items: ItemEvents) -> None:
        self.reply, self.said, self.items = reply, said, items
        self.choice = Choice(0)

    def take(self, came: Came) -> list[dict[str, Any]]:
        """What is told of it."""
        self.choice.take(came[1])
        return list(self.items.take(came[1]))

    def of_all(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """An event of the whole response."""
        return self.items.event(name, response=body)

    def so_far(self) -> dict[str, Any]:
        """The items that are whole."""
        return self.reply.body("in_progress", list(self.items.output))

    def failed(self, error: MaclusterError) -> dict[str, Any]:
        """With what there is, and why there is no more."""
        return self.reply.body("failed", list(self.items.output), error=error)

    def whole(self) -> dict[str, Any]:
        """All of it."""
        list(self.items.close())
        assert self.choice.done
        return self.reply.body(status_of(self.choice.done), self.items.output, self.choice)


async def _send(stream: EventStream, event: dict[str, Any]) -> None:
    await stream.send(event, event["type"])


def _unknown(name: str) -> web.Response:
    what = f"There is no response {name!r}: they are kept in memory, the newest alone, until the node ends."
    return refused(404, what)
