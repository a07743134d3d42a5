"""HTTP for other programs: answers of the model that this Mac leads, or another one. It reaches answers and nothing
else.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from aiohttp import web

from core.errors import Busy, MaclusterError, NodeError
from core.events import ApiServed
from core.node.base.bus import Bus
from core.node.base.defects import defects_logger
from core.node.base.stopwatch import Stopwatch
from core.node.base.tasks import Tasks
from core.node.config import ApiOptions
from core.node.public_api.admission import ClientAdmission
from core.node.public_api.anthropic_handlers import AnthropicHandlers
from core.node.public_api.api_answers import ApiAnswers
from core.node.public_api.api_clients import Clients
from core.node.public_api.chat_handlers import ChatHandlers
from core.node.public_api.chat_replies import RETRY_S, error_body, status
from core.node.public_api.completions_handlers import CompletionsHandlers
from core.node.public_api.http_bodies import SLOW_S, WATCH, Handler, json_reply, refused, timing_of
from core.node.public_api.listener import Listener
from core.node.public_api.metrics import Metrics
from core.node.public_api.model_list import Models
from core.node.public_api.responses_handlers import ResponsesHandlers
from core.trust.api_certificate import own_names, server_context
from core.trust.api_keys import ApiKeys

MAX_BODY: Final = 32 << 20


class PublicApi:
    """Serves one node's answers; `secret` opens what lies in `folder`."""

    def __init__(
        self,
        options: ApiOptions,
        answering: ApiAnswers,
        keys: ApiKeys,
        clients: Clients,
        bus: Bus,
        tasks: Tasks,
        folder: Path,
        secret: bytes,
    ) -> None:
        self._options, self._folder, self._secret, self._tasks = options, folder, secret, tasks
        self._answering = answering
        self._metrics = Metrics(bus, answering.line)
        self._admission = ClientAdmission(keys, clients, options, own_names())
        self._listener = Listener(tasks)
        self._runner: web.AppRunner | None = None
        self._counting: asyncio.Task[None] | None = None

    async def start(self) -> ApiServed:
        """Listen. Raises NodeError where that is not possible, TrustError where the certificate cannot be used."""
        context, fingerprint = None, ""
        if self._options.has_tls:
            context, fingerprint = server_context(self._folder, self._secret, self._options.host)
        app = web.Application(
            client_max_size=MAX_BODY,
            middlewares=[_timed, _problems, self._listener.clients.note, self._admission.admit],
        )
        app.on_response_prepare.append(_add_timing)
        app.on_response_prepare.append(self._admission.add_headers)
        app.add_routes(self._routes())
        logger = defects_logger("public_api", "A request to the API", self._tasks)
        self._runner = web.AppRunner(
            app, access_log=None, logger=logger, shutdown_timeout=1.0, handler_cancellation=True
        )
        await self._runner.setup()
        assert self._runner.server
        try:
            port = self._listener.start(self._options, self._runner.server, context)
        except MaclusterError:
            await self._runner.cleanup()
            raise
        self._counting = self._tasks.restartable("Counting for those who watch", self._metrics.watch)
        return self._options.served_at(port, fingerprint)

    async def stop(self) -> None:
        """Let nobody in, tell whoever asks or waits that it is switched off, and end every stream."""
        self._listener.stop()
        off = NodeError("The API of this Mac was switched off.", "Ask again when it is on, or ask another Mac's.")
        self._answering.end(off, also_relayed=False)
        if self._counting:
            self._counting.cancel()
        if self._runner:
            await self._runner.cleanup()

    def _routes(self) -> list[web.RouteDef]:
        models = Models(self._answering, self._options.is_loopback)
        openai = ChatHandlers(self._answering, models)
        anthropic = AnthropicHandlers(self._answering, models)
        responses = ResponsesHandlers(self._answering, models)
        completions = CompletionsHandlers(self._answering, models)
        own = [web.get("/", _alive), web.get("/health", _alive), *self._metrics.routes()]
        return [
            *own,
            *models.routes(),
            *openai.routes(),
            *completions.routes(),
            *anthropic.routes(),
            *responses.routes(),
        ]


async def _alive(request: web.Request) -> web.Response:
    return json_reply({"status": "ok"})


async def _add_timing(request: web.Request, reply: web.StreamResponse) -> None:
    if laps := request[WATCH].laps:
        reply.headers["Server-Timing"] = timing_of(laps)


@web.middleware
async def _timed(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Nobody has to take his reply, but he is not waited for."""
    request[WATCH] = Stopwatch()
    reply = await handler(request)
    try:
        async with asyncio.timeout(SLOW_S):
            await reply.prepare(request)
            await reply.write_eof()
    except TimeoutError:
        if request.transport:
            request.transport.abort()
    return reply


@web.middleware
async def _problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except MaclusterError as error:
        reply = json_reply(error_body(error.problem), status(error))
        if isinstance(error, Busy):
            reply.headers["Retry-After"] = str(RETRY_S)
        return reply
    except web.HTTPException as error:
        return refused(error.status, f"{request.method} {request.path}: {error.reason}.")
