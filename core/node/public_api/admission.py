"""Decides which requests are let in: by host name, origin, API key, and requests in progress."""

from __future__ import annotations

import re
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from core.address import ip_of
from core.errors import Busy, TrustError
from core.node.base.http_clients import HttpClients
from core.node.config import ApiOptions
from core.node.public_api.api_clients import Clients
from core.node.public_api.http_bodies import OWNER, refused
from core.trust.api_keys import ApiKeys

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
OPEN: Final = frozenset({"/", "/health"})
MAX_PER_KEY: Final = 64  # requests in progress
_BEARER: Final = re.compile("^bearer +", re.IGNORECASE)


class ClientAdmission:
    """Middleware that checks each request."""

    def __init__(
        self, keys: ApiKeys, clients: Clients, places: HttpClients, options: ApiOptions, names: frozenset[str]
    ) -> None:
        self._keys, self._options, self._places = keys, options, places
        # host names by which clients may address this Mac
        self._names = LOOPBACK if options.is_loopback else LOOPBACK | names | {options.host}
        self._clients = clients

    @web.middleware
    async def admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Raises Busy if one key has too many requests in progress."""
        if not self._is_ours(host := _name_in(request.headers.get("Host", ""))):
            return refused(403, f"This API is not served at {host!r}.")
        if not self._may_read(request):
            what = f"Pages of {request.headers['Origin']!r} can't use this API. Allow them with `--allow-origin`."
            return refused(403, what)
        if request.method == "OPTIONS" and "Origin" in request.headers:
            return web.Response(status=204)
        if request.path in OPEN:
            return await handler(request)
        given = _BEARER.sub("", request.headers.get("Authorization", "")) or request.headers.get("x-api-key", "")
        try:
            owner = self._keys.owner(given) if given else None
        except TrustError:  # its words name a folder, and this client has proved nothing
            return refused(503, "This Mac can't read its API keys. `macluster serve --keys` says why.")
        if owner is None and not self._options.no_key:
            return refused(401, "The API key is missing or wrong. `macluster serve --new-key NAME` makes one.")
        request[OWNER] = owner or ""
        if self._clients.asking(request[OWNER]) >= MAX_PER_KEY:
            what = f"This key has {MAX_PER_KEY} requests in progress, the most allowed."
            raise Busy(what, "Try again when one of them is done.")
        with self._clients.counted(request[OWNER], request), self._places.let_in(request):
            return await handler(request)

    async def add_headers(self, request: web.Request, reply: web.StreamResponse) -> None:
        """Add the CORS headers for allowed origins."""
        if request.headers.get("Origin") in self._options.origins:
            reply.headers["Access-Control-Allow-Origin"] = request.headers["Origin"]
            reply.headers["Vary"] = "Origin"
            reply.headers["Access-Control-Expose-Headers"] = "Retry-After, Server-Timing"
            if request.method == "OPTIONS":
                reply.headers["Access-Control-Allow-Methods"] = "GET, POST, DELETE"
                wanted = request.headers.get("Access-Control-Request-Headers", "Authorization, Content-Type, X-Api-Key")
                reply.headers["Access-Control-Allow-Headers"] = wanted

    def _is_ours(self, host: str) -> bool:
        """Whether `host` is this Mac. Against DNS rebinding, other names that resolve to it are refused."""
        return host in self._names or (not self._options.is_loopback and ip_of(host) is not None)

    def _may_read(self, request: web.Request) -> bool:
        origin = request.headers.get("Origin")
        own = f"{request.scheme}://{request.headers.get('Host', '')}"
        return origin is None or origin == own or origin in self._options.origins


def _name_in(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()
