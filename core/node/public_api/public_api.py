"""HTTP for other programs: completions over the model that is loaded. It reaches answers and nothing else."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import msgspec
from aiohttp import web

from core.errors import Busy, MaclusterError, NodeError, NotLoaded, UsageError, error_from
from core.events import RequestDone, Snapshot, TokenEvent
from core.field_errors import plain
from core.node.answers.answers import Answers
from core.node.base.tasks import Tasks
from core.node.public_api.openai_chat import ChatCompletion, TextCompletion
from core.node.public_api.openai_replies import RETRY_S, Choice, Kind, Reply, error_body, status
from core.trust.api_keys import ApiKeys

MAX_BODY: Final = 32 << 20
KEEP_ALIVE_S: Final = 10.0
SILENT_S: Final = 120.0  # so long may an answer say nothing
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
OPEN: Final = frozenset({"/", "/health"})

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_Completion = ChatCompletion | TextCompletion


class PublicApi:
    """Serves one node's answers. `now` tells which model is loaded."""

    def __init__(self, answers: Answers, keys: ApiKeys, now: Callable[[], Snapshot], tasks: Tasks) -> None:
        self._answers, self._keys, self._now, self._tasks = answers, keys, now, tasks
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self, host: str, port: int) -> None:
        """Listen there. Raises NodeError where that is not possible, and where strangers could reach it."""
        if host not in ("127.0.0.1", "::1", "localhost"):
            what = f"The API is not served at {host}: words would travel there in clear."
            raise NodeError(what, "Serve it at 127.0.0.1, and lead it on through a tunnel of your own.")
        app = web.Application(client_max_size=MAX_BODY, middlewares=[_problems, self._admit])
        app.add_routes(
            [
                web.get("/", _alive),
                web.get("/health", _alive),
                web.get("/v1/models", self._models),
                web.get("/v1/models/{id:.+}", self._model),
                web.post("/v1/chat/completions", self._chat),
                web.post("/v1/completions", self._complete),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            what = f"The API cannot be served at {host}:{port}: {error.strerror}."
            raise NodeError(what, "Take another one: --api-port.") from error
        address = self._runner.addresses[0]
        self.url = f"http://{host}:{address[1]}"

    async def stop(self) -> None:
        """End every stream, and listen no more."""
        if self._runner:
            await self._runner.cleanup()

    @web.middleware
    async def _admit(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Only who names this Mac, which a page of another site cannot, and has a key."""
        host = request.headers.get("Host", "").rpartition(":")[0] or request.headers.get("Host", "")
        if host not in LOOPBACK:
            return _refused(403, f"This API is not at {host!r}.")
        if request.path not in OPEN:
            given = request.headers.get("Authorization", "").removeprefix("Bearer ") or request.headers.get("x-api-key")
            if not given or self._keys.owner(given) is None:
                return _refused(401, "There is no such key. `macluster serve --new-key NAME` makes one.")
        return await handler(request)

    async def _models(self, request: web.Request) -> web.Response:
        model = self._entry()
        found = [model] if model else []
        ends = {"first_id": found[0]["id"] if found else None, "last_id": found[-1]["id"] if found else None}
        return _json({"object": "list", "data": found, "has_more": False, **ends})

    async def _model(self, request: web.Request) -> web.Response:
        model = self._entry()
        if model and model["id"] == request.match_info["id"]:
            return _json(model)
        return _refused(404, f"No model {request.match_info['id']!r} is loaded.")

    def _entry(self) -> dict[str, Any] | None:
        plan = self._now().plan
        if plan is None:
            return None
        name = plan.model.rpartition("/")[2]
        return {
            "id": name,
            "object": "model",
            "type": "model",
            "created": 0,
            "created_at": "1970-01-01T00:00:00Z",
            "owned_by": "macluster",
            "display_name": name,
        }

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, await _asked(request, ChatCompletion), "chat", "chatcmpl-")

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, await _asked(request, TextCompletion), "text", "cmpl-")

    async def _answer(self, request: web.Request, asked: _Completion, kind: Kind, prefix: str) -> web.StreamResponse:
        entry = self._entry()
        if entry is None:
            raise NotLoaded("No model is loaded.")
        if asked.model not in ("", entry["id"]):
            return _refused(404, f"The model {asked.model!r} is not loaded; {entry['id']} is.", "model_not_found")
        reply = Reply(id=prefix + secrets.token_hex(12), model=entry["id"], created=int(time.time()), kind=kind)
        choices = [Choice(index) for index in range(asked.n)]
        events = self._events(asked, choices)
        try:
            if asked.stream:
                return await self._stream(request, asked, reply, choices, events)
            async for _ in events:
                pass
            return _json(reply.whole(choices))
        finally:
            await events.aclose()

    async def _events(
        self, asked: _Completion, choices: list[Choice]
    ) -> AsyncGenerator[tuple[int, TokenEvent | RequestDone] | None, None]:
        """What comes of each choice, by its index; None where nothing came for a while. Ends what still runs."""
        arrived: asyncio.Queue[tuple[int, TokenEvent | RequestDone | MaclusterError]] = asyncio.Queue()
        wanted = asked.request()

        async def follow(index: int) -> None:
            try:
                async for event in self._answers.follow(wanted):
                    arrived.put_nowait((index, event))
            except MaclusterError as error:
                arrived.put_nowait((index, error))

        rows = [self._tasks.spawn("An answer for the API", follow(choice.index)) for choice in choices]
        last = asyncio.get_running_loop().time()
        try:
            while any(choice.done is None for choice in choices):
                try:
                    async with asyncio.timeout(KEEP_ALIVE_S):
                        index, event = await arrived.get()
                except TimeoutError:
                    if asyncio.get_running_loop().time() - last > SILENT_S:
                        raise NodeError(f"Nothing came for {SILENT_S:.0f} s.", "Ask again.") from None
                    yield None
                    continue
                last = asyncio.get_running_loop().time()
                if isinstance(event, MaclusterError):
                    raise event
                if isinstance(event, TokenEvent):
                    choices[index].tokens.append(event)
                else:
                    choices[index].done = event
                    if event.problem:
                        raise error_from(event.problem)
                yield index, event
        finally:
            for row in rows:
                row.cancel()

    async def _stream(
        self,
        request: web.Request,
        asked: _Completion,
        reply: Reply,
        choices: list[Choice],
        events: AsyncIterator[tuple[int, TokenEvent | RequestDone] | None],
    ) -> web.StreamResponse:
        first = await anext(events)  # what is wrong with the request has a status of its own
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        logprobs = asked.request().sampling.logprobs is not None
        with suppress(ConnectionError):
            if reply.kind == "chat":
                for choice in choices:
                    await response.write(_event(reply.beginning(choice.index)))
            try:
                while True:
                    if first is None:
                        await response.write(b": still there\n\n")
                    else:
                        index, event = first
                        await response.write(_event(reply.piece(index, event, logprobs=logprobs)))
                    first = await anext(events)
            except StopAsyncIteration:
                pass
            except MaclusterError as error:
                await response.write(_event(error_body(error.problem)))
                return response
            if asked.stream_options.include_usage:
                await response.write(_event(reply.ending(choices)))
            await response.write(b"data: [DONE]\n\n")
        return response


async def _alive(request: web.Request) -> web.Response:
    return _json({"status": "ok"})


async def _asked(request: web.Request, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(await request.read(), type=kind)
    except (RecursionError, UnicodeDecodeError) as error:
        raise UsageError("The body is no JSON that can be read.") from error
    except msgspec.MsgspecError as error:
        told = plain(error)
        raise UsageError(f"{told[0].upper()}{told[1:]}.") from error


def _json(body: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), content_type="application/json", status=status)


def _event(body: object) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


def _refused(status: int, what: str, code: str | None = None) -> web.Response:
    kind = "authentication_error" if status == 401 else "invalid_request_error"
    return _json({"error": {"message": what, "type": kind, "param": None, "code": code}}, status)


@web.middleware
async def _problems(request: web.Request, handler: _Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except MaclusterError as error:
        reply = _json(error_body(error.problem), status(error))
        if isinstance(error, Busy):
            reply.headers["Retry-After"] = str(RETRY_S)
        return reply
