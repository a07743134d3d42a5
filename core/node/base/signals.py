"""Signals inside a node: lower rooms define and emit them, rooms above subscribe (in their `room.py`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec


class Signal(msgspec.Struct, frozen=True):
    """Handled at once, before the emitter continues."""


class AwaitedSignal(msgspec.Struct, frozen=True):
    """Handled while the emitter waits, so that a link is not read faster than it is served."""


_S = TypeVar("_S", bound=Signal)
_A = TypeVar("_A", bound=AwaitedSignal)


class Signals:
    """Passes every signal to the subscribers of its class, in the order of subscription."""

    def __init__(self) -> None:
        self._handlers: dict[type[Signal], list[Callable[[Any], object]]] = {}
        self._awaited: dict[type[AwaitedSignal], list[Callable[[Any], Awaitable[None]]]] = {}

    def on(self, kind: type[_S], handle: Callable[[_S], object]) -> None:
        self._handlers.setdefault(kind, []).append(handle)

    def on_awaited(self, kind: type[_A], handle: Callable[[_A], Awaitable[None]]) -> None:
        """Call `handle` with every signal of that kind; the emitter waits for it."""
        self._awaited.setdefault(kind, []).append(handle)

    def emit(self, signal: Signal) -> None:
        for handle in self._handlers.get(type(signal), ()):
            handle(signal)

    async def deliver(self, signal: AwaitedSignal) -> None:
        for handle in self._awaited.get(type(signal), ()):
            await handle(signal)
