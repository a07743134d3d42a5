"""Request and response bodies of the API, whole or as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec
from aiohttp import web

from core.errors import UsageError
from core.node.base.large_bodies import off_loop
from core.node.base.local_server import json_reply
from core.node.base.stopwatch import Stopwatch
from core.node.public_api.request_fields import request_body

BODY_S: Final = 60.0  # time to send a whole body
QUIET_S: Final = 5.0  # after this much silence a stream gets a keep-alive
SLOW_S: Final = 60.0  # a client that reads nothing for this long is disconnected

UNDECODABLE: Final = ("The body can't be decoded as its headers say.", "Send it as it is, or as gzip.")
_CODINGS: Final = {"identity", "gzip", "deflate", "br", "zstd"}  # that aiohttp knows

SIZE: Final = web.RequestKey("size", int)  # bytes of the body

WATCH: Final = web.RequestKey("watch", Stopwatch)

OWNER: Final = web.RequestKey("owner", str)  # name of the API key, "" without one

_Body = TypeVar("_Body", bound=msgspec.Struct)


async def read_body(request: web.Request, kind: type[_Body]) -> _Body:
    """The decoded body. Raises UsageError if it is invalid or takes longer than `BODY_S`."""
    if request.headers.get("Content-Encoding", "identity").lower() not in _CODINGS:
        raise UsageError(*UNDECODABLE)
    try:
        async with asyncio.timeout(BODY_S):
            raw = await request.read()
    except web.RequestPayloadError as error:
        raise UsageError(*UNDECODABLE) from error
    except TimeoutError as error:
        raise UsageError(f"The body did not arrive within {BODY_S:.0f} s.") from error
    request[WATCH].begin()
    request[SIZE] = len(raw)
    value = await off_loop(len(raw), partial(request_body, raw, kind))
    request[WATCH].lap("parse")
    return value


def timing_of(laps: Mapping[str, float]) -> str:
    """The node's own time as a `Server-Timing` header, in milliseconds."""
    return ", ".join(f"{name};dur={1000 * seconds:.3f}" for name, seconds in laps.items())


def refused(status: int, what: str) -> web.Response:
    """An error body that both OpenAI's and Anthropic's clients read."""
    kind = {401: "authentication_error", 500: "server_error"}.get(status, "invalid_request_error")
    return json_reply({"type": "error", "error": {"message": what, "type": kind, "param": None, "code": None}}, status)


def typed_event(body: dict[str, Any]) -> bytes:
    return event(body, body["type"])


def event(body: object, name: str = "") -> bytes:
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + msgspec.json.encode(body) + b"\n\n"


class EventStream:
    """Writes server-sent events. If the client is gone, or reads nothing for `SLOW_S`, `write` raises ConnectionError,
    which ends the block silently.
    """

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._sent_at = monotonic()
        self.response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})

    async def __aenter__(self) -> Self:
        await self.response.prepare(self._request)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, _: object, trace: TracebackType | None) -> bool:
        return kind is not None and issubclass(kind, ConnectionError)

    @property
    def is_quiet(self) -> bool:
        return monotonic() - self._sent_at > QUIET_S

    async def write(self, *lines: bytes) -> None:
        if not lines:
            return
        try:
            async with asyncio.timeout(SLOW_S):
                await self.response.write(b"".join(lines))
            self._sent_at = monotonic()
        except TimeoutError as error:
            if self._request.transport:
                self._request.transport.abort()
            raise ConnectionError from error
