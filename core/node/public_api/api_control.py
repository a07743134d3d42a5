"""Turns the API on and off, and manages its keys."""

from __future__ import annotations

import time
from collections.abc import Callable

from core.events import ApiServed, ApiStopped
from core.node.base.context import NodeContext
from core.node.public_api.api_clients import Clients
from core.node.public_api.public_api import PublicApi
from core.requests.api import ApiKeyName, NewApiKey
from core.trust.api_keys import ApiKeys


class ApiControl:
    """The commands about the API."""

    def __init__(self, node: NodeContext, make: Callable[[], PublicApi], keys: ApiKeys, clients: Clients) -> None:
        # `make` is called when the API is first started
        self._make, self._keys, self._bus, self._journal = make, keys, node.bus, node.journal
        self.clients = clients
        self._api: PublicApi | None = None

    async def start(self) -> ApiServed:
        """Start serving, if the API is off. Raises NodeError, TrustError."""
        if now := self._bus.now.api:
            return now
        self._api = self._api or self._make()
        served = await self._api.start()
        self._journal.info(f"The API is served at {served.url}.")
        if served.warning:
            self._journal.warn(served.warning)
        self._bus.publish(served)
        return served

    async def stop(self) -> None:
        if self._api and self._bus.now.api:
            self._bus.publish(ApiStopped())
            await self._api.stop()
            self._journal.info("The API is off.")

    def new_key(self, wanted: ApiKeyName) -> NewApiKey:
        """Make a key; it is shown only once. Raises UsageError."""
        made = NewApiKey(name=wanted.name, key=self._keys.add(wanted.name, time.time()))
        self.clients.look()
        return made

    def revoke_key(self, wanted: ApiKeyName) -> None:
        self._keys.revoke(wanted.name)
        self.clients.look()
