"""What happens inside a node, from whoever notices it to whom it concerns: lower parts emit, those above subscribe.

A signal is defined beside the part that emits it. `message_router` shows who gets those of the network and the worker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec


class Signal(msgspec.Struct, frozen=True):
    """Something that is dealt with at once, before the emitter goes on."""


class AwaitedSignal(msgspec.Struct, frozen=True):
    """Something that takes its time, and the emitter waits for it: so a link is not read faster than it is served."""


_S = TypeVar("_S", bound=Signal)
_A = TypeVar("_A", bound=AwaitedSignal)


class Signals:
    """Every signal goes to those who subscribed to its very class, in the order in which they did."""

    def __init__(self) -> None:
        self._handlers: dict[type[Signal], list[Callable[[Any], None]]] = {}
        self._awaited: dict[type[AwaitedSignal], list[Callable[[Any], Awaitable[None]]]] = {}

    def on(self, kind: type[_S], handle: Callable[[_S], None]) -> None:
        """Call `handle` with every signal of that kind."""
        self._handlers.setdefault(kind, []).append(handle)

    def on_awaited(self, kind: type[_A], handle: Callable[[_A], Awaitable[None]]) -> None:
        """Let the emitter of every signal of that kind wait for `handle`."""
        self._awaited.setdefault(kind, []).append(handle)

    def emit(self, signal: Signal) -> None:
        """It happened; whatever a handler raises is raised here."""
        for handle in self._handlers.get(type(signal), ()):
            handle(signal)

    async def deliver(self, signal: AwaitedSignal) -> None:
        """It happened; return when all have dealt with it. Whatever a handler raises is raised here."""
        for handle in self._awaited.get(type(signal), ()):
            await handle(signal)
