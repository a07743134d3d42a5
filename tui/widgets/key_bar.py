"""The footer: the few keys that matter where the focus is, made from the bindings."""

from __future__ import annotations

from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from tui.format import DIM
from tui.registry import OUR_IDS

_LAST = "mc.quit"


class KeyBar(Static):
    """One line of keys; Quit stands at the right end."""

    def __init__(self) -> None:
        super().__init__(id="keys", markup=False)
        self._shown = Content("")

    def on_mount(self) -> None:
        """Follow the focus."""
        self.screen.bindings_updated_signal.subscribe(self, self._bindings_changed)
        self.call_after_refresh(self._draw)

    def on_resize(self) -> None:
        """Another width: draw again."""
        self._draw()

    def _bindings_changed(self, screen: Screen[object]) -> None:
        self._draw()

    def _draw(self) -> None:
        if not self.is_attached or self.size.width <= 0:
            return
        keys: dict[str, tuple[str, str]] = {}
        for _, binding, enabled, _ in self.screen.active_bindings.values():
            if binding.show and enabled and binding.id in OUR_IDS:
                keys.setdefault(binding.id or "", (self.app.get_key_display(binding), binding.description))
        line = keys_content(keys, self.size.width)
        if not line.is_same(self._shown):
            self._shown = line
            self.update(line)


def keys_content(keys: dict[str, tuple[str, str]], width: int) -> Content:
    """(key, word) by binding id as one line of `width` cells; keys that do not fit are left to the help."""
    last = _key(*keys[_LAST]) if _LAST in keys else Content("")
    line = Content("")
    for name, pair in keys.items():
        grown = line + " " + _key(*pair) + " "
        if name != _LAST and grown.cell_length + last.cell_length + 1 <= width:
            line = grown
    return Content.assemble(line, " " * max(0, width - line.cell_length - last.cell_length - 1), last)


def _key(key: str, word: str) -> Content:
    return Content.assemble((key, "bold $accent"), " ", (word, DIM))
