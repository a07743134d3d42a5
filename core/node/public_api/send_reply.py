"""One reply, whole or as it comes. Its course is the same for every API; what is said in it is the API's own `Form`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from typing import Any, ClassVar, Protocol

from aiohttp import web

from core.errors import MaclusterError
from core.node.answers.answer_stream import Said
from core.node.public_api.api_answers import Came
from core.node.public_api.http_bodies import WATCH, EventStream, json_reply, timing_of
from core.requests.answers import RequestAccepted


class ReplyEncoder(Protocol):
    """What clients of one API are told of the answers to one request. Lines are server-sent events, as they stand.
    `has_comments`: its clients expect comments between them.
    """

    has_comments: ClassVar[bool]

    def take(self, index: int, said: Said) -> Iterable[bytes]:
        """What came of the answer of that index, to be kept; the lines that tell it."""

    def beginning(self) -> Iterable[bytes]:
        """The lines before all others, once the request is taken."""

    def still_there(self) -> bytes:
        """The line for whoever heard nothing for a while."""

    def failed(self, error: MaclusterError) -> bytes:
        """The last line, where nothing more comes."""

    def ending(self) -> Iterable[bytes]:
        """The last lines, where all answers have ended."""

    def whole(self) -> dict[str, Any]:
        """The body of a reply that does not stream, where all answers have ended."""


async def send_reply(
    request: web.Request, form: ReplyEncoder, events: AsyncGenerator[Came | None, None], *, streams: bool
) -> web.StreamResponse:
    """Reply with what comes. Raises MaclusterError before anything is told, when the reply has a status of its own."""
    try:
        if streams:
            return await _streamed(request, form, events)
        async for came in events:
            if came:
                form.take(*came)
        return json_reply(form.whole())
    finally:
        await events.aclose()


async def _streamed(
    request: web.Request, form: ReplyEncoder, events: AsyncGenerator[Came | None, None]
) -> web.StreamResponse:
    """What the node's own time was is told at the end, too, where the reply had to begin before all of it was known."""
    came = await anext(events)
    while came and isinstance(came[1], RequestAccepted):  # what is wrong with the request has a status of its own
        form.take(*came)
        came = await anext(events)
    stream, laps = EventStream(request), request[WATCH].laps
    async with stream:
        reported = len(laps)
        await stream.write(*form.beginning())
        try:
            while True:
                lines = [*form.take(*came)] if came else []
                if not lines and stream.is_quiet:  # what a model writes is not always shown at once
                    lines = [form.still_there()]
                await stream.write(*lines)
                came = await anext(events)
        except StopAsyncIteration:
            pass
        except MaclusterError as error:
            await stream.write(form.failed(error))
            return stream.response
        if len(laps) > reported and form.has_comments:
            await stream.write(f": server-timing {timing_of(laps)}\n\n".encode())
        await stream.write(*form.ending())
    return stream.response
