"""Sends one reply, whole or as a stream, in the encoding of any of the APIs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from typing import Any, ClassVar, Protocol

from aiohttp import web

from core.errors import MaclusterError
from core.node.answers.answer_stream import Said
from core.node.base.local_server import json_reply
from core.node.public_api.api_answers import IndexedEvent
from core.node.public_api.http_bodies import WATCH, EventStream, timing_of
from core.requests.answers import RequestAccepted


class ReplyEncoder(Protocol):
    """Encodes the answers to one request for the clients of one API; lines are server-sent events."""

    has_comments: ClassVar[bool]  # whether the clients skip comment lines

    def take(self, index: int, said: Said) -> Iterable[bytes]:
        """Take an event of answer `index`; returns the lines to send."""

    def beginning(self) -> Iterable[bytes]:
        """The first lines."""

    def still_there(self) -> bytes:
        """A keep-alive line."""

    def failed(self, error: MaclusterError) -> bytes:
        """The last line of a stream that fails."""

    def ending(self) -> Iterable[bytes]:
        """The last lines of a complete stream."""

    def whole(self) -> dict[str, Any]:
        """The body of a reply that does not stream."""


async def send_reply(
    request: web.Request, encoder: ReplyEncoder, events: AsyncGenerator[IndexedEvent | None, None], *, streams: bool
) -> web.StreamResponse:
    """Reply with `events`. Raises MaclusterError if nothing was sent yet, so that the reply has a status of its own."""
    try:
        if streams:
            return await _streamed(request, encoder, events)
        async for came in events:
            if came:
                encoder.take(*came)
        return json_reply(encoder.whole())
    finally:
        await events.aclose()


async def _streamed(
    request: web.Request, encoder: ReplyEncoder, events: AsyncGenerator[IndexedEvent | None, None]
) -> web.StreamResponse:
    came = await anext(events)
    while came and isinstance(came[1], RequestAccepted):  # a bad request fails before this, with its own status
        encoder.take(*came)
        came = await anext(events)
    stream, laps = EventStream(request), request[WATCH].laps
    async with stream:
        reported = len(laps)
        await stream.write(*encoder.beginning())
        try:
            while True:
                lines = [*encoder.take(*came)] if came else []
                if not lines and stream.is_quiet:  # text may be held back, for example in a tool call
                    lines = [encoder.still_there()]
                await stream.write(*lines)
                came = await anext(events)
        except StopAsyncIteration:
            pass
        except MaclusterError as error:
            await stream.write(encoder.failed(error))
            return stream.response
        if len(laps) > reported and encoder.has_comments:
            # more laps than the header had when the stream began
            await stream.write(f": server-timing {timing_of(laps)}\n\n".encode())
        await stream.write(*encoder.ending())
    return stream.response
