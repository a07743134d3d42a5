"""Textual's palette, with a cursor that is visible without colour."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.command import CommandList, CommandPalette
from textual.theme import Theme

from tui.widgets.cursor_list import CursorList


class CommandsWithCursor(CommandList, CursorList):
    """The found commands; each starts with two blank cells."""


class PaletteWithCursor(CommandPalette):
    """Textual's palette with our list."""

    def compose(self) -> ComposeResult:
        for part in super().compose():
            yield CommandsWithCursor() if type(part) is CommandList else part

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, self._restyle)

    def _restyle(self, theme: Theme) -> None:
        self.app.stylesheet.update(self, animate=False)


class ThemePalette(PaletteWithCursor):
    """The list of themes; the screen below it previews the theme."""
