"""The room of the API for other programs."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from aiohttp import web

from core.events import ApiServed, ApiStopped
from core.node.answers.room import AnswersRoom
from core.node.base.context import NodeContext
from core.node.base.local_server import route
from core.node.base.room import Room
from core.node.public_api.api_answers import ApiAnswers, LedModel
from core.node.public_api.api_clients import Clients
from core.node.public_api.load_on_request import LoadOnRequest
from core.node.public_api.public_api import PublicApi
from core.requests.api import ApiKeyName, NewApiKey
from core.requests.plans import LoadRequest
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
        self.clients.disconnect(wanted.name)
        self.clients.look()


class PublicApiRoom(Room):
    """The API for other programs, and its keys."""

    def __init__(
        self,
        node: NodeContext,
        answers: AnswersRoom,
        elsewhere: Callable[[], LedModel],
        held: Callable[[], Iterable[str]],
        load: Callable[[LoadRequest], Awaitable[None]],
    ) -> None:
        """`elsewhere` finds the model that another Mac leads; `held` has the full names of this Mac's models, `load`
        loads one.
        """
        super().__init__(node)
        bus, options, keys = node.bus, node.config.api, ApiKeys(node.home.api_keys)
        clients, loading = Clients(keys, bus), LoadOnRequest(held, load, bus) if options.allow_load else None
        self.answering = ApiAnswers(answers.answers, lambda: bus.now, elsewhere, node.tasks, options.queue, loading)
        self.api = ApiControl(node, partial(PublicApi, node, self.answering, keys, clients), keys, clients)

    def routes(self) -> Iterable[web.RouteDef]:
        return (
            route("POST", "/v1/api/start", self.api.start),
            route("POST", "/v1/api/stop", self.api.stop),
            route("POST", "/v1/api/keys", self.api.new_key, ApiKeyName),
            route("DELETE", "/v1/api/keys/{name:[^/]+}", self.api.revoke_key, ApiKeyName),
        )
