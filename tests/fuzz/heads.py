"""Raw requests to the API, with their heads.

A client without a key gets nothing, no head of foreign text goes back, and all work for a client ends with its
connection.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from core.events import LogLine
from core.node.config import ApiOptions
from tests.fuzz.target import Target
from tests.support.api import KEY, ServedHarness, served_harness
from tests.support.maker import make_model

PAGE = "http://pages.example"
_STEPS = 60  # turns of the event loop; no request here waits for anything else
_NEEDS_KEY = (b'"object"', b"# HELP", b"data: {")  # models, figures, answers
_OURS = frozenset(
    (b"content-type content-length date server connection cache-control transfer-encoding retry-after server-timing "
     b"vary allow access-control-allow-origin access-control-allow-methods access-control-allow-headers "
     b"access-control-expose-headers").split()
)  # fmt: skip
_HEAD = re.compile(rb"HTTP/\d\.\d \d{3} [^\r\n]*\r\n((?:[^\r\n]+\r\n)*)\r\n")


class _Client(asyncio.Transport):
    """A connection whose other end sends once, and keeps the reply."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 9), "sockname": ("127.0.0.1", 4720)})
        self.heard = bytearray()
        self._is_closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.heard += data

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True

    abort = close

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class _Bench:
    """A served node on its own event loop."""

    def __init__(self) -> None:
        self._loop, self._stack = asyncio.new_event_loop(), AsyncExitStack()
        self._folder = TemporaryDirectory(prefix="heads")
        self.harness = self._loop.run_until_complete(self._begin(Path(self._folder.name)))

    async def _begin(self, folder: Path) -> ServedHarness:
        make_model(folder / "model", "llama", layers=1)
        options = ApiOptions(port=0, origins=frozenset({PAGE}))
        return await self._stack.enter_async_context(served_harness(folder / "home", folder / "model", options))

    def attack(self, data: bytes) -> None:
        client = self._loop.run_until_complete(self._sent(data))
        seen = bytes(client.heard)
        assert KEY.encode() in data or not any(told in seen for told in _NEEDS_KEY), "what needs a key"
        for head in _HEAD.findall(seen):
            names = {line.partition(b":")[0].lower() for line in head.splitlines()}
            assert names <= _OURS, "a head that is none of ours"
        assert not seen or seen.startswith(b"HTTP/"), "something before the first head"
        failed = [one for one in self.harness.bus.events if isinstance(one, LogLine) and "defect" in one.text]
        assert not failed, failed[0].text
        self.harness.bus.events.clear()

    async def _sent(self, data: bytes) -> _Client:
        assert self.harness.api._runner
        server = self.harness.api._runner.server
        assert server
        client, protocol = _Client(), server()
        protocol.connection_made(client)
        protocol.data_received(data)
        await self._settle()
        protocol.connection_lost(None)
        for _ in range(20):
            await self._settle()
            if not (self.harness.answers.under_way or self.harness.waiting()._running):
                return client
        raise AssertionError("what was begun did not end with its client")

    async def _settle(self) -> None:
        for _ in range(_STEPS):
            await asyncio.sleep(0)

    def end(self) -> None:
        self._loop.run_until_complete(self._stack.aclose())
        self._loop.close()
        self._folder.cleanup()


def target() -> Target:
    """Requests of clients and browsers, with a key and without."""
    bench = _Bench()
    body = b'{"messages":[{"role":"user","content":"hello"}],"max_tokens":4,"stream":true}'
    ask = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:4720\r\nContent-Type: application/json\r\n"
    chunks = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    length = b"Content-Length: %d\r\n" % len(body)
    wanted = b"Access-Control-Request-Headers: authorization\r\nAccess-Control-Request-Method: POST\r\n"
    seeds = [
        b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1:4720\r\nAuthorization: Bearer sesame\r\n\r\n",
        b"GET /v1/models?limit=1000 HTTP/1.1\r\nHost: [::1]:4720\r\nx-api-key: sesame\r\nConnection: close\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer other\r\nAccept-Encoding: gzip\r\n\r\n",
        b"HEAD / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /health HTTP/1.0\r\nHost: evil.example\r\n\r\n",
        b"OPTIONS /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://pages.example\r\n" + wanted + b"\r\n",
        ask + b"x-api-key: sesame\r\nAccept: text/event-stream\r\n" + length + b"\r\n" + body,
        ask + b"Authorization: Bearer sesame\r\nOrigin: http://pages.example\r\n" + chunks,
        ask + b"Expect: 100-continue\r\nanthropic-version: 2023-06-01\r\n" + length + b"\r\n" + body,
        b"DELETE /v1/responses/resp_1 HTTP/1.1\r\nHost: 127.0.0.1\r\nx-api-key: sesame\r\nCookie: a=b\r\n\r\n",
    ]
    return Target("heads", bench.attack, seeds, end=bench.end)
