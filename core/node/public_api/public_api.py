"""HTTP for other programs: answers of the model that is loaded. It reaches answers and nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from core.errors import Busy, MaclusterError, NodeError
from core.events import Snapshot
from core.node.answers.answers import Answers
from core.node.base.stopwatch import Stopwatch
from core.node.base.tasks import Tasks
from core.node.public_api.answering import Answering
from core.node.public_api.bodies import WATCH, json_reply, refused
from core.node.public_api.models import Models
from core.node.public_api.openai_handlers import OpenAiHandlers
from core.node.public_api.openai_replies import RETRY_S, error_body, status
from core.node.public_api.waiting_line import DEFAULT_QUEUE
from core.trust.api_keys import ApiKeys

MAX_BODY: Final = 32 << 20
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
OPEN: Final = frozenset({"/", "/health"})

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class PublicApi:
    """Serves one node's answers. `now` tells which model is loaded."""

    def __init__(self, answers: Answers, keys: ApiKeys, now: Callable[[], Snapshot], tasks: Tasks) -> None:
        self._keys = keys
        self._answering = Answering(answers, now, tasks, DEFAULT_QUEUE)
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self, host: str, port: int) -> None:
        """Listen there. Raises NodeError where that is not possible, and where strangers could reach it."""
        if host not in ("127.0.0.1", "::1", "localhost"):
            what = f"The API is not served at {host}: words would travel there in clear."
            raise NodeError(what, "Serve it at 127.0.0.1, and lead it on through a tunnel of your own.")
        app = web.Application(client_max_size=MAX_BODY, middlewares=[_problems, self._admit])
        app.on_response_prepare.append(_add_timing)
        models = Models(self._answering)
        app.add_routes([web.get("/", _alive), web.get("/health", _alive), *models.routes()])
        app.add_routes(OpenAiHandlers(self._answering, models).routes())
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
        request[WATCH] = Stopwatch()
        host = request.headers.get("Host", "").rpartition(":")[0] or request.headers.get("Host", "")
        if host not in LOOPBACK:
            return refused(403, f"This API is not at {host!r}.")
        if request.path not in OPEN:
            given = request.headers.get("Authorization", "").removeprefix("Bearer ") or request.headers.get("x-api-key")
            if not given or self._keys.owner(given) is None:
                return refused(401, "There is no such key. `macluster serve --new-key NAME` makes one.")
        return await handler(request)


async def _alive(request: web.Request) -> web.Response:
    return json_reply({"status": "ok"})


async def _add_timing(request: web.Request, reply: web.StreamResponse) -> None:
    """The node's own time, in the header that browsers and clients know; in milliseconds."""
    if WATCH in request and (laps := request[WATCH].laps):
        told = (f"{name};dur={1000 * seconds:.3f}" for name, seconds in laps.items())
        reply.headers["Server-Timing"] = ", ".join(told)


@web.middleware
async def _problems(request: web.Request, handler: _Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except MaclusterError as error:
        reply = json_reply(error_body(error.problem), status(error))
        if isinstance(error, Busy):
            reply.headers["Retry-After"] = str(RETRY_S)
        return reply
