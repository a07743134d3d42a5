"""The theme by the user's settings; previews themes and remembers the chosen one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path

from textual.theme import Theme, ThemeProvider

from core.errors import TrustError
from core.settings import Home
from tui.control.app_interface import AppInterface
from tui.control.preferences import Preferences, remember_theme
from tui.control.themes import DARK


def theme_of(preferences: Preferences, known: Collection[str]) -> str:
    return next((name for name in (preferences.theme, preferences.remembered) if name in known), DARK.name)


def config_complaints(preferences: Preferences, known: Collection[str]) -> tuple[str, ...]:
    if not preferences.theme or preferences.theme in known:
        return preferences.complaints
    return (*preferences.complaints, f"Unknown theme {preferences.theme!r}. The palette lists all themes.")


class Themes(ThemeProvider):
    """The list of themes: the current one, then ours, then Textual's."""

    @property
    def commands(self) -> list[tuple[str, Callable[[], None]]]:
        now = self.app.theme
        return sorted(super().commands, key=lambda c: (c[0] != now, not c[0].startswith("macluster"), c[0]))


class ThemeChoice:
    """Previews the theme under the cursor, and saves the chosen one in `folder`; `named` is config.toml's theme."""

    def __init__(self, app: AppInterface, folder: Path, named: str) -> None:
        self._app = app
        self._folder = folder
        self._named = named
        self._kept = app.theme
        self._is_looking = False
        self._lock = asyncio.Lock()

    def begin(self) -> None:
        self._is_looking = True

    def look_at(self, name: str) -> None:
        if self._is_looking:
            self._app.theme = name

    def end(self, *, is_chosen: bool) -> None:
        if self._is_looking:
            self._is_looking = False
            if is_chosen:
                self._keep(self._app.theme)
            else:
                self._app.theme = self._kept

    def changed(self, theme: Theme) -> None:
        if not self._is_looking:
            self._keep(theme.name)

    def _keep(self, name: str) -> None:
        if name == self._kept:
            return
        self._kept = name
        if self._named not in ("", name):
            self._app.notify(f"config.toml sets {self._named}, so it returns at the next start.")
        self._app.in_background(self._save)

    async def _save(self) -> None:
        async with self._lock:  # in order, so that the last choice is saved last
            try:
                await asyncio.to_thread(remember_theme, Home(self._folder).theme, self._kept)
            except TrustError as error:
                self._app.notify(f"The theme can't be saved: {error}")
