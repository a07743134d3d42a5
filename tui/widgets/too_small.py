"""The message on a terminal that is too small for any layout."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

WIDE = (100, 30)
LEAST = (60, 16)


def layout_for(width: int, height: int) -> str:
    if width < LEAST[0] or height < LEAST[1]:
        return "small"
    return "wide" if width >= WIDE[0] and height >= WIDE[1] else "narrow"


class TooSmall(Static):
    """The size of the terminal, and the size it needs."""

    def __init__(self) -> None:
        super().__init__(id="too-small", markup=False)

    def show(self, width: int, height: int) -> None:
        self.update(Content(f"This terminal is {width}x{height}. macluster needs at least {LEAST[0]}x{LEAST[1]}."))
