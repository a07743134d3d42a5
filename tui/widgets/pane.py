"""Base of the panes: a bordered, scrollable text that is redrawn only when it changes."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content

from tui.control.actions import KeyOwner
from tui.control.keymap import PANE, Action
from tui.control.messages import Copied
from tui.state.state import UiState
from tui.widgets.text_view import TextView


class Drawing(NamedTuple):
    """Content of a pane. Titles contain foreign names, so they are plain text and never markup."""

    title: str
    body: Content
    subtitle: str = ""
    above: int = 0  # lines out of sight, not in `body`
    below: int = 0  # the same below


class Pane(KeyOwner, VerticalScroll, can_focus=True):
    """Base of the panes; subclasses draw a state in a width."""

    ACTIONS: ClassVar[tuple[Action, ...]] = PANE

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, classes="pane")
        self._state = UiState()
        self._shown: Drawing | None = None
        self._body = TextView()

    def compose(self) -> ComposeResult:
        yield self._body

    def draw(self, state: UiState, width: int) -> Drawing:
        raise NotImplementedError

    def show(self, state: UiState) -> None:
        self._state = state
        width = self.scrollable_content_region.width
        if not self.is_mounted or not self.display or width <= 0:
            return
        new, old = self.draw(state, width), self._shown
        if old is None or new.title != old.title:
            self.border_title = Content(new.title)
        if old is None or new.subtitle != old.subtitle:
            self.border_subtitle = Content(new.subtitle) if new.subtitle else None
        if old is None or (new.above, new.below) != (old.above, old.below):
            self._body.styles.padding = (new.above, 0, new.below, 0)
        self._body.draw(new.body)
        self._shown = new

    def on_resize(self) -> None:
        self.show(self._state)

    def action_copy_text(self) -> None:
        if self._shown is not None:
            self.post_message(Copied(self._shown.body.plain))
