"""Responses that a later request can continue: the newest, in memory only, each for its own API key."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final, NamedTuple

import msgspec

from core.requests.answers import Message

MAX_RESPONSES: Final = 256
MAX_BYTES: Final = 64 << 20


class StoredResponse(NamedTuple):
    """A response that can be continued."""

    body: dict[str, Any]
    messages: tuple[Message, ...]  # the conversation up to the answer, which is the last
    size: int  # bytes


class StoredResponses:
    """Stored responses by owner and id."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], StoredResponse] = OrderedDict()
        self._bytes = 0

    def keep(self, owner: str, body: dict[str, Any], messages: tuple[Message, ...]) -> None:
        """Store one, dropping the oldest; one larger than a quarter of `MAX_BYTES` is not stored."""
        size = len(msgspec.msgpack.encode((body, messages)))
        if size > MAX_BYTES // 4:
            return
        self._kept[owner, body["id"]] = StoredResponse(body, messages, size)
        self._bytes += size
        while len(self._kept) > MAX_RESPONSES or self._bytes > MAX_BYTES:
            self._bytes -= self._kept.popitem(last=False)[1].size

    def find(self, owner: str, name: str) -> StoredResponse | None:
        return self._kept.get((owner, name))

    def forget(self, owner: str, name: str) -> bool:
        found = self._kept.pop((owner, name), None)
        self._bytes -= found.size if found else 0
        return found is not None
