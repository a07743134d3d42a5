"""Lists with a cursor that is visible without colour."""

from __future__ import annotations

from typing import Final

from rich.segment import Segment
from textual.app import ComposeResult
from textual.command import CommandList, CommandPalette
from textual.strip import Strip
from textual.widgets import OptionList

from tui.control.actions import KeyOwner

CURSOR: Final = "▸"
# a row starts with its mark and a blank, or with a blank
_WITHIN: Final = 2


class CursorList(KeyOwner, OptionList):
    """A list that draws its cursor into the first blank cell of the row."""

    def render_line(self, y: int) -> Strip:
        strip, at = super().render_line(y), self.scroll_offset.y + y
        here = self._lines[at] if at < len(self._lines) else None
        if here is None or here != (self.highlighted, 0):
            return strip
        return _marked(strip)


class CommandsWithCursor(CommandList, CursorList):
    """The found commands; each starts with two blank cells."""


class PaletteWithCursor(CommandPalette):
    """Textual's palette with our list."""

    def compose(self) -> ComposeResult:
        for part in super().compose():
            yield CommandsWithCursor() if type(part) is CommandList else part

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self.app.stylesheet.update(self, animate=False))


class ThemePalette(PaletteWithCursor):
    """The list of themes; the screen below it previews the theme."""


def _marked(strip: Strip) -> Strip:
    cell = strip.text[:_WITHIN].find(" ")
    if cell < 0:
        return strip
    before, blank, rest = strip.crop(0, cell), strip.crop(cell, cell + 1), strip.crop(cell + 1)
    style = next(iter(blank)).style
    return Strip.join([before, Strip([Segment(CURSOR, style)], 1), rest])
