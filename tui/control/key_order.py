"""Handles keys strictly one after the other.

A terminal may hand over many keys at once. Textual gives each key to the current focus, but acts on it later, once it
has bubbled up to the app: the next keys would still go to the old focus.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

from textual.app import App
from textual.dom import DOMNode
from textual.events import Event

# a key bubbles up to the app, where its binding acts; then its messages do, or the screen it opened appears
ROUNDS: Final = 2
# the next key overtakes slower work, so that keys never stop working
LONGEST_S: Final = 1.0


class KeyOrder:
    """Passes keys and pastes of `app` to `hand_on`, each after the one before has left all queues."""

    def __init__(self, app: App[Any], hand_on: Callable[[Event], Awaitable[None]]) -> None:
        self._app = app
        self._hand_on = hand_on
        self._waiting: deque[Event] = deque()
        self._began: float | None = None
        self._count = 0

    async def take(self, event: Event) -> None:
        self._waiting.append(event)
        if self._began is None or time.monotonic() - self._began > LONGEST_S:
            await self._next()

    async def _next(self) -> None:
        if not self._waiting:
            self._began = None
            return
        self._began = time.monotonic()
        self._count += 1
        await self._hand_on(self._waiting.popleft())
        await self._pass(self._count, self._way())

    async def _pass(self, count: int, way: Iterator[DOMNode]) -> None:
        if count != self._count:
            return
        for node in way:
            if node.call_later(self._pass, count, way):
                return
        await self._next()

    def _way(self) -> Iterator[DOMNode]:
        for _ in range(ROUNDS):
            if self._app.screen_stack:
                yield from list((self._app.focused or self._app.screen).ancestors_with_self)
