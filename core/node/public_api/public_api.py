"""HTTP API for other programs. It reaches answers and models, never trust, pairing or files."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Handler

from core.errors import Busy, MaclusterError, NodeError, NotReady
from core.events import ApiServed
from core.node.base.context import NodeContext
from core.node.base.http_clients import LIMITS
from core.node.base.local_server import json_reply
from core.node.base.stopwatch import Stopwatch
from core.node.base.tasks import defects_logger
from core.node.public_api.admission import ClientAdmission
from core.node.public_api.anthropic_handlers import AnthropicHandlers
from core.node.public_api.api_answers import ApiAnswers
from core.node.public_api.api_clients import Clients
from core.node.public_api.api_errors import LOADING_RETRY_S, anthropic_error, openai_error, status
from core.node.public_api.http_bodies import SLOW_S, WATCH, refused, timing_of
from core.node.public_api.listener import ApiConnection, Listener
from core.node.public_api.metrics import Metrics
from core.node.public_api.model_list import Models
from core.node.public_api.openai_handlers import OpenAiHandlers
from core.node.public_api.responses_handlers import ResponsesHandlers
from core.trust.api_certificate import own_names, server_context
from core.trust.api_keys import ApiKeys

MAX_BODY: Final = 32 << 20


class PublicApi:
    """Serves the answers of one node."""

    def __init__(self, node: NodeContext, answers: ApiAnswers, keys: ApiKeys, clients: Clients) -> None:
        self._options, self._tasks, self._answers = node.config.api, node.tasks, answers
        self._certificate, self._secret = node.home.api_certificate, node.identity.secret("api certificate")
        self._metrics = Metrics(node.bus, answers.queue)
        self._listener = Listener(node.tasks)
        self._admission = ClientAdmission(keys, clients, self._listener.clients, self._options, own_names())
        self._runner: web.AppRunner | None = None
        self._counting: asyncio.Task[None] | None = None

    async def start(self) -> ApiServed:
        """Listen. Raises NodeError, or TrustError if the certificate cannot be used."""
        context, fingerprint = None, ""
        if self._options.has_tls:
            context, fingerprint = server_context(self._certificate, self._secret, self._options.host)
        app = web.Application(client_max_size=MAX_BODY, middlewares=[_timed, _problems, self._admission.admit])
        app.on_response_prepare.append(_add_headers)
        app.on_response_prepare.append(self._admission.add_headers)
        app.add_routes(self._routes())
        logger = defects_logger("public_api", "An API request", self._tasks)
        self._runner = web.AppRunner(app, shutdown_timeout=1.0, handler_cancellation=True)
        await self._runner.setup()
        assert self._runner.server
        more: Any = {"access_log": None, "logger": logger, **LIMITS}
        connect = partial(ApiConnection, self._runner.server, loop=asyncio.get_running_loop(), **more)
        try:
            port = self._listener.start(self._options, connect, context)
        except MaclusterError:
            await self._runner.cleanup()
            raise
        self._counting = self._tasks.restartable("Counting for metrics", self._metrics.watch)
        return self._options.served_at(port, fingerprint)

    async def stop(self) -> None:
        """Stop listening, and end every request with an error."""
        self._listener.stop()
        off = NodeError("The API of this Mac was turned off.", "Try again when it is on, or use another Mac's.")
        self._answers.end(off, also_relayed=False)
        if self._counting:
            self._counting.cancel()
        if self._runner:
            await self._runner.cleanup()

    def _routes(self) -> list[web.RouteDef]:
        models = Models(self._answers, self._options.is_loopback)
        return [
            web.get("/", _alive),
            web.get("/health", _alive),
            *self._metrics.routes(),
            *models.routes(),
            *OpenAiHandlers(self._answers, models).routes(),
            *AnthropicHandlers(self._answers, models).routes(),
            *ResponsesHandlers(self._answers, models).routes(),
        ]


async def _alive(request: web.Request) -> web.Response:
    return json_reply({"status": "ok"})


async def _add_headers(request: web.Request, reply: web.StreamResponse) -> None:
    reply.headers["Server"] = "macluster"
    if (watch := request.get(WATCH)) and watch.laps:
        reply.headers["Server-Timing"] = timing_of(watch.laps)


@web.middleware
async def _timed(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Disconnects a client that has not read its reply within `SLOW_S`."""
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
        is_anthropic = request.path.startswith("/v1/messages")
        reply = json_reply(anthropic_error(error) if is_anthropic else openai_error(error), status(error))
        if isinstance(error, Busy | NotReady):
            reply.headers["Retry-After"] = str(error.retry_s if isinstance(error, Busy) else LOADING_RETRY_S)
        return reply
    except web.HTTPException as error:
        return refused(error.status, f"{request.method} {request.path}: {error.reason}.")
