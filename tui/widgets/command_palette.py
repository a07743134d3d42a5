"""Textual's palette, with a cursor that is seen without colour."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.command import CommandList, CommandPalette

from tui.widgets.marked_list import MarkedList


class MarkedCommands(CommandList, MarkedList):
    """What was found; a command has two blank cells before it."""


class MarkedPalette(CommandPalette):
    """As Textual's, but for the list."""

    def compose(self) -> ComposeResult:
        """The parts as they are there, with our list in the place of its own."""
        for part in super().compose():
            yield MarkedCommands() if type(part) is CommandList else part
