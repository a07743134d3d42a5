"""Pieces of text that change."""

from __future__ import annotations

from collections.abc import Callable

from textual.content import Content
from textual.geometry import Size
from textual.reactive import Reactive
from textual.widgets import Static

from tui.state.format import between
from tui.state.state import UiState


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


class StateView(TextView):
    """Text about the state, drawn again for another width."""

    def __init__(self, content_of: Callable[[UiState, int], Content], *, id: str) -> None:
        super().__init__(id=id)
        self._content_of, self._state = content_of, UiState()

    def show(self, state: UiState) -> None:
        self._state = state
        if self.display and self.size.width > 0:
            self.draw(self._content_of(state, self.size.width))

    def on_resize(self) -> None:
        self.show(self._state)


def title_line(name: str, right: str, width: int, *, more: str = "", style: str = "") -> Content:
    """The screen's name in bold and `more` on the left, `right` in `style` at the other end of `width` cells."""
    end = f"{right} " if right else ""
    line = between(f" {name}{more}", end, width)
    return Content(line).stylize("bold", 0, len(name) + 1).stylize(style, max(0, len(line) - len(end)), len(line))
