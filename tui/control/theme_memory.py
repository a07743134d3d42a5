"""The theme that the person chose, kept for the next start."""

from __future__ import annotations

import asyncio
from pathlib import Path

from textual.theme import Theme

from tui.control.interface import AppInterface
from tui.control.preferences import memory_in, remember_theme


class ThemeMemory:
    """Remembers a theme in `folder`, and says so where that changes nothing: the file names `named`, "" for none."""

    def __init__(self, app: AppInterface, folder: Path, named: str) -> None:
        self._app = app
        self._folder = folder
        self._named = named
        self._chosen = ""
        self._lock = asyncio.Lock()

    def remember(self, theme: Theme) -> None:
        """`theme` was chosen."""
        self._chosen = theme.name
        if self._named not in ("", theme.name):
            self._app.notify(f"config.toml names {self._named}: that one is back at the next start.")
        self._app.in_background(self._save)

    async def _save(self) -> None:
        async with self._lock:  # one after the other; the last one is what is chosen then
            try:
                await asyncio.to_thread(remember_theme, memory_in(self._folder), self._chosen)
            except OSError as error:
                self._app.notify(f"The theme is not remembered: {error.strerror}.")
