"""The API keys, and how many requests each has in progress."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from aiohttp import web

from core.errors import TrustError
from core.events import ApiClient, ApiClients
from core.node.base.bus import Bus
from core.node.base.client_name import CLIENT
from core.trust.api_keys import ApiKey, ApiKeys

NOBODY = "no key"  # the name shown for requests without a key


class Clients:
    """Counts requests by API key, publishes the counts, and ends those of a key that is revoked."""

    def __init__(self, keys: ApiKeys, bus: Bus) -> None:
        self._keys, self._bus = keys, bus
        self._known: tuple[ApiKey, ...] = ()
        self._asking: Counter[str] = Counter()
        self._connections: dict[asyncio.Transport | None, str] = {}  # of requests in progress, with their keys

    def asking(self, name: str) -> int:
        return self._asking[name]

    @contextmanager
    def counted(self, name: str, request: web.Request) -> Iterator[None]:
        """Count a request of that key while the block runs."""
        before = CLIENT.set(name or NOBODY)
        self._asking[name] += 1
        connection = request.transport
        self._connections[connection] = name
        self._publish()
        try:
            yield
        finally:
            self._asking[name] -= 1
            self._connections.pop(connection, None)
            CLIENT.reset(before)
            self._publish()

    def disconnect(self, name: str) -> None:
        """Close the connections of a key at once; what waits to be sent is dropped."""
        for connection, key in self._connections.items():
            if key == name and connection:
                connection.abort()

    def look(self) -> None:
        """Read the keys again. An unreadable file is reported where a key is needed."""
        with suppress(TrustError):
            self._known = self._keys.all()
            self._publish()

    def _publish(self) -> None:
        known = [ApiClient(name=k.name, hint=k.hint, made=k.made, asking=self._asking[k.name]) for k in self._known]
        others = [ApiClient(name=NOBODY, asking=self._asking[""])] if self._asking[""] else []
        reported = (*known, *others)
        if reported != self._bus.now.clients:
            self._bus.publish(ApiClients(clients=reported))
