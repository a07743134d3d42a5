"""The API keys, and how many requests each has in progress."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from core.errors import TrustError
from core.events import ApiClient, ApiClients
from core.node.base.bus import Bus
from core.node.base.client_name import CLIENT
from core.trust.api_keys import ApiKey, ApiKeys

NOBODY = "no key"  # the name shown for requests without a key


class Clients:
    """Counts requests by API key and publishes the counts."""

    def __init__(self, keys: ApiKeys, bus: Bus) -> None:
        self._keys, self._bus = keys, bus
        self._known: tuple[ApiKey, ...] = ()
        self._asking: Counter[str] = Counter()

    def asking(self, name: str) -> int:
        return self._asking[name]

    @contextmanager
    def counted(self, name: str) -> Iterator[None]:
        """Count a request of that key while the block runs."""
        before = CLIENT.set(name or NOBODY)
        self._asking[name] += 1
        self._publish()
        try:
            yield
        finally:
            self._asking[name] -= 1
            CLIENT.reset(before)
            self._publish()

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
