"""What screens have in common: they are drawn anew, and know how large the terminal is."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol, runtime_checkable

from textual.events import Resize
from textual.screen import Screen

from tui.state.state import UiState
from tui.widgets.too_small import TooSmall, layout_for

# whole paths: a subclass of the app may live in another folder
STYLES: Final = Path(__file__).parent


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
    """Carries one of the classes `wide`, `narrow` and `small`; shows only the sentence of `TooSmall` when small."""

    def __init__(self) -> None:
        super().__init__()
        self.add_class(layout_for(*self.app.size))  # which is right already, unless the terminal is being resized

    def on_resize(self, event: Resize) -> None:
        """Choose the layout."""
        layout = layout_for(event.size.width, event.size.height)
        for name in ("wide", "narrow", "small"):
            self.set_class(layout == name, name)
        self.query_one(TooSmall).show(event.size.width, event.size.height)
        self.call_after_refresh(self.laid_out)

    def laid_out(self) -> None:
        """The widgets have their new sizes."""
