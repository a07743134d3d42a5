"""Bounds the requests of other Macs that are answered at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class OnePerMac(Generic[_T]):
    """Answers one request at a time per Mac; of requests that arrive meanwhile, only the last `most` are answered."""

    def __init__(self, answer: Callable[[str, _T], Awaitable[None]], most: int = 1) -> None:
        self._answer, self._most = answer, most
        self._waiting: dict[str, deque[_T]] = {}
        self._busy: set[str] = set()

    async def take(self, device_id: str, request: _T) -> None:
        """Answer a request, or queue it for the running call for this Mac."""
        self._waiting.setdefault(device_id, deque(maxlen=self._most)).append(request)
        if device_id in self._busy:
            return
        self._busy.add(device_id)
        try:
            while waiting := self._waiting.get(device_id):
                await self._answer(device_id, waiting.popleft())
        finally:
            self._busy.discard(device_id)

    def forget(self, device_id: str) -> None:
        self._waiting.pop(device_id, None)
