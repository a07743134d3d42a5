"""Somebody who drives the app: keys go in, what the screen shows comes out, and what is to come is waited for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

from textual.events import Key
from textual.keys import _character_to_key
from textual.pilot import Pilot
from textual.screen import Screen

from tui.app import MaclusterApp
from tui.cli.demo import Demo
from tui.client import NodeClient

SEEN_S = 120.0


class Person:
    """Somebody in front of a running app."""

    def __init__(self, app: MaclusterApp, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot

    @property
    def text(self) -> str:
        """What the screen shows, line by line."""
        return "\n".join(strip.text for strip in self.app.screen._compositor.render_strips())

    async def press(self, *keys: str) -> None:
        """Press them one after the other, each when the screen has dealt with the one before.

        Not the pilot's own, which waits two seconds a key for the app to come to rest: while an answer is written it
        does not.
        """
        for key in keys:
            character = key if len(key) == 1 else None
            self.app.post_message(Key(_character_to_key(key) if character else key, character))
            for _ in range(2):  # what the app hands to a widget, and what that asks for
                await self.pilot.pause(0.02)

    async def rests(self) -> None:
        """Before what must not have happened: until the app comes to rest, or a second is over."""
        await self.pilot.pause()

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait for it; what the screen shows is told if it does not come."""
        deadline = monotonic() + SEEN_S  # a timeout cancels once, and Python 3.11 may swallow that in a pause
        while not reached():
            assert monotonic() < deadline, self.text
            await self.pilot.pause(0.02)

    async def sees(self, *words: str) -> None:
        """Wait until all of them are on the screen, wherever the cursor is, and nothing on it is too wide."""

        def shown() -> bool:
            text = self.text
            fits = max(map(len, text.splitlines()), default=0) <= self.app.size.width
            return fits and all(word in text or word in text.replace("▸", " ") for word in words)

        await self.until(shown)

    async def opens(self, *keys: str, screen: type[Screen[Any]]) -> None:
        """Press them, and wait for that screen."""
        await self.press(*keys)
        await self.until(lambda: isinstance(self.app.screen, screen))


@asynccontextmanager
async def viewer_of(demo: Demo, size: tuple[int, int]) -> AsyncIterator[Person]:
    async with NodeClient(demo.home) as client:
        app = MaclusterApp(client)
        async with app.run_test(size=size, notifications=True) as pilot:
            viewer = Person(app, pilot)
            await viewer.until(lambda: app.state.attached)
            yield viewer
