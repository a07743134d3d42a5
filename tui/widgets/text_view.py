"""A piece of text that changes."""

from __future__ import annotations

from textual.content import Content
from textual.geometry import Size
from textual.reactive import Reactive
from textual.widgets import Static


class TextView(Static):
    """Text that is redrawn only if it changed, and laid out (slow) only if its height changed. Set its width in CSS."""

    # Textual would lay out again after each layout in which this changed
    virtual_size: Reactive[Size] = Reactive(Size(0, 0))

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(markup=False, id=id, classes=classes)
        self.shown: Content = Content("")

    def draw(self, content: Content) -> None:
        if content.is_same(self.shown):
            return
        self.shown = content
        # not `size`, which lays out everything out of sight for a new widget
        width, height = self.outer_size - self.gutter.totals
        self.update(content, layout=height < 1 or content.get_height({}, width) != height)
