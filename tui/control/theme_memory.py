"""The theme that the person chose, kept for the next start."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from textual.theme import Theme

from tui.control.preferences import memory_in, remember_theme

if TYPE_CHECKING:
    from tui.app import MaclusterApp


class ThemeMemory:
    """Remembers the theme of `app`, and tells its person where that changes nothing."""

    def __init__(self, app: MaclusterApp) -> None:
        self._app = app
        self._keeping = asyncio.Lock()

    def remember(self, theme: Theme) -> None:
        """`theme` was chosen."""
        named = self._app.preferences.theme
        if named not in ("", theme.name):
            self._app.note_down(f"config.toml names {named}: that one is back at the next start.")
        self._app.command(self._keep())

    async def _keep(self) -> None:
        async with self._keeping:  # one after the other; the last one is what is chosen then
            try:
                await asyncio.to_thread(remember_theme, memory_in(self._app.folder), self._app.theme)
            except OSError as error:
                self._app.note_down(f"The theme is not remembered: {error.strerror}.")
