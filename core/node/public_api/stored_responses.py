"""Responses that can be gone on with: in this process' memory alone, the newest of them, each for its own key."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final, NamedTuple

import msgspec

from core.requests.answers import Message

MOST: Final = 256
MOST_BYTES: Final = 64 << 20


class StoredResponse(NamedTuple):
    """The `body` that was answered, and all that was `said` until then, the answer last; `size` in bytes."""

    body: dict[str, Any]
    said: tuple[Message, ...]
    size: int


class StoredResponses:
    """By who owns them and their ids."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], StoredResponse] = OrderedDict()
        self._bytes = 0

    def keep(self, owner: str, body: dict[str, Any], said: tuple[Message, ...]) -> None:
        """The oldest make room; one for which too many would have to go is not kept."""
        size = len(msgspec.msgpack.encode((body, said)))
        if size > MOST_BYTES // 4:
            return
        self._kept[owner, body["id"]] = StoredResponse(body, said, size)
        self._bytes += size
        while len(self._kept) > MOST or self._bytes > MOST_BYTES:
            self._bytes -= self._kept.popitem(last=False)[1].size

    def find(self, owner: str, name: str) -> StoredResponse | None:
        """One that is still kept."""
        return self._kept.get((owner, name))

    def forget(self, owner: str, name: str) -> bool:
        """Whether there was such a one."""
        found = self._kept.pop((owner, name), None)
        self._bytes -= found.size if found else 0
        return found is not None
