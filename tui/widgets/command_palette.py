"""Textual's palette, with a cursor that is seen without colour."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.command import CommandList, CommandPalette
from textual.theme import Theme

from tui.widgets.marked_list import MarkedList


class MarkedCommands(CommandList, MarkedList):
    """What was found; a command has two blank cells before it."""


class MarkedPalette(CommandPalette):
    """As Textual's, but for the list."""

    def compose(self) -> ComposeResult:
        """The parts as they are there, with our list in the place of its own."""
        for part in super().compose():
            yield MarkedCommands() if type(part) is CommandList else part

    def on_mount(self) -> None:
        """Textual would leave it in the theme in which it was opened."""
        self.app.theme_changed_signal.subscribe(self, self._restyle)

    def _restyle(self, theme: Theme) -> None:
        self.app.stylesheet.update(self, animate=False)


class ThemePalette(MarkedPalette):
    """The list of themes: what is behind it is seen as it will be."""
