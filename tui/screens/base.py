"""What screens have in common: they are drawn anew, and know how large the terminal is."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import Final, Protocol, TypeVar, runtime_checkable

from textual.events import Resize
from textual.screen import Screen

from tui.control.bridge import FAILURES, problem_of
from tui.control.messages import Failed
from tui.state.state import UiState
from tui.widgets.too_small import TooSmall, layout_for

# whole paths: a subclass of the app may live in another folder
STYLES: Final = Path(__file__).parent

_T = TypeVar("_T")


@runtime_checkable
class Follower(Protocol):
    """A screen that is drawn anew when anything happens."""

    def show(self, state: UiState) -> None:
        """Draw that."""


@runtime_checkable
class Interruptible(Protocol):
    """A screen that may have begun something with another Mac."""

    async def break_off(self) -> None:
        """End it, before the app ends."""


@runtime_checkable
class ShowsModels(Protocol):
    """A screen that shows the catalog of models."""

    def show_choices(self) -> None:
        """Draw what is new in it."""


class SizedScreen(Screen[None]):
    """Carries one of the classes `wide`, `narrow` and `small`; shows only the sentence of `TooSmall` when small. What
    it asks the node for fails on the dashboard's line.
    """

    def __init__(self) -> None:
        super().__init__()
        self.add_class(self._layout(*self.app.size))  # which is right already, unless the terminal is being resized

    def on_resize(self, event: Resize) -> None:
        """Choose the layout."""
        layout = self._layout(event.size.width, event.size.height)
        for name in ("wide", "narrow", "small"):
            self.set_class(layout == name, name)
        self.query_one(TooSmall).show(event.size.width, event.size.height)
        self.call_after_refresh(self.laid_out)

    def _layout(self, width: int, height: int) -> str:
        """Plain is one thing below the other, however much room there is beside it."""
        layout = layout_for(width, height)
        return "narrow" if layout == "wide" and self.app.has_class("plain") else layout

    def laid_out(self) -> None:
        """The widgets have their new sizes."""

    def do(self, work: Awaitable[object]) -> None:
        """Begin something; whether it fails is told."""
        self.run_worker(self.answer_of(work), exit_on_error=False)

    async def answer_of(self, work: Awaitable[_T]) -> _T | None:
        """What the node answers. None where that fails, which is told."""
        try:
            return await work
        except FAILURES as error:
            self.post_message(Failed(problem_of(error)))
            return None
