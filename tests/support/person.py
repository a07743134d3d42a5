"""A user of the app: presses keys, reads the screen, and waits for texts."""

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
    """A user in front of a running app."""

    def __init__(self, app: MaclusterApp, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot

    @property
    def text(self) -> str:
        """The text of the screen, line by line."""
        return "\n".join(strip.text for strip in self.app.screen._compositor.render_strips())

    async def press(self, *keys: str) -> None:
        """Press keys one after the other, each after the screen has handled the one before.

        The pilot's own `press` waits up to two seconds per key for an idle app, which it is not while an answer is
        written.
        """
        for key in keys:
            character = key if len(key) == 1 else None
            self.app.post_message(Key(_character_to_key(key) if character else key, character))
            for _ in range(2):  # first the messages from the app to a widget, then the widget's own
                await self.pilot.pause(0.02)

    async def rests(self) -> None:
        """Wait until the app is idle, or one second, before a test checks that nothing happened."""
        await self.pilot.pause()

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait for `reached`; a failure shows the screen."""
        deadline = monotonic() + SEEN_S  # a timeout cancels once, and Python 3.11 may swallow that in a pause
        while not reached():
            assert monotonic() < deadline, self.text
            await self.pilot.pause(0.1)  # each look may draw the whole screen

    async def sees(self, *words: str) -> None:
        """Wait until all texts are on the screen, wherever the cursor is, and nothing on it is too wide."""

        def shown() -> bool:
            text = self.text
            fits = max(map(len, text.splitlines()), default=0) <= self.app.size.width
            return fits and all(word in text or word in text.replace("▸", " ") for word in words)

        await self.until(shown)

    async def opens(self, *keys: str, screen: type[Screen[Any]]) -> None:
        """Press the keys, and wait for that screen."""
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
