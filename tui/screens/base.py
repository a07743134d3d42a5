"""A screen that knows how large the terminal is."""

from __future__ import annotations

from textual.events import Resize
from textual.screen import Screen

from tui.widgets.too_small import TooSmall, layout_for


class SizedScreen(Screen[None]):
    """Carries one of the classes `wide`, `narrow` and `small`; shows only the sentence of `TooSmall` when small."""

    def on_resize(self, event: Resize) -> None:
        """Choose the layout."""
        layout = layout_for(event.size.width, event.size.height)
        for name in ("wide", "narrow", "small"):
            self.set_class(layout == name, name)
        self.query_one(TooSmall).show(event.size.width, event.size.height)
        self.call_after_refresh(self.laid_out)

    def laid_out(self) -> None:
        """The widgets have their new sizes."""
