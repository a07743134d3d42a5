"""What the rooms of the disks need of the control links: send to a linked Mac, and answer it without piling up work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, Protocol, TypeVar

from core.node.base.node_message import NodeMessage

_T = TypeVar("_T")


class MessageSender(Protocol):
    """Sends messages to linked Macs."""

    async def send(self, device_id: str, message: NodeMessage) -> bool:
        """Whether it went out."""


class ControlLinks(MessageSender, Protocol):
    """The control links that are open."""

    @property
    def contacts(self) -> Mapping[str, object]:
        """By device id; a new link is another object."""


class LatestRequest(Generic[_T]):
    """Answers one request at a time for each Mac. Of those that arrive meanwhile, only the last one is answered."""

    def __init__(self, answer: Callable[[str, _T], Awaitable[None]]) -> None:
        self._answer = answer
        self._waiting: dict[str, _T] = {}
        self._busy: set[str] = set()

    async def take(self, device_id: str, request: _T) -> None:
        """Answer it, or leave it to the call that is answering this Mac already."""
        self._waiting[device_id] = request
        if device_id in self._busy:
            return
        self._busy.add(device_id)
        try:
            while device_id in self._waiting:
                await self._answer(device_id, self._waiting.pop(device_id))
        finally:
            self._busy.discard(device_id)

    def forget(self, device_id: str) -> None:
        """Drop the request of a Mac that waits."""
        self._waiting.pop(device_id, None)
