"""The footer: the most important keys for the focus, made from the bindings."""

from __future__ import annotations

from typing import NamedTuple

from textual.app import App
from textual.binding import Binding
from textual.content import Content
from textual.dom import DOMNode
from textual.screen import Screen

from tui.control.actions import is_text, why_not, word_of
from tui.control.keymap import EVERYTHING
from tui.state.format import DIM
from tui.widgets.text_view import TextView

# always shown: back, help, quit
_BACK, _HELP, _QUIT = "-back", "mc.help", "mc.quit"
_ORDER = {action.id: n for n, action in enumerate(EVERYTHING)}


class Key(NamedTuple):
    """A key in the footer; a disabled one stays in its place."""

    key: str
    word: str
    possible: bool = True


class KeyBar(TextView):
    """One line of keys: those of the focused widget first, then of the screen and the app; Quit is at the right end."""

    def __init__(self) -> None:
        super().__init__(id="keys")

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self._draw())
        self.call_after_refresh(self._draw)

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        if not self.is_attached or self.size.width <= 0:
            return
        keys: dict[str, Key] = {}
        dead: set[str] = set()  # actions whose shown key is text in the focused input
        # screens above the dashboard show only their own keys
        is_above = self.screen is not self.app.screen_stack[0]
        for node, binding, enabled, _ in sorted(self.screen.active_bindings.values(), key=_place):
            is_near = not (is_above and isinstance(node, App)) or binding.id in (_HELP, _QUIT)
            if binding.show and enabled and is_near and binding.id in _ORDER:
                possible = not why_not(self.app, node, binding.action)
                word = word_of(node, binding.action) or binding.description
                key = Key(self.app.get_key_display(binding), word, possible)
                if binding.id not in keys or (binding.id in dead and not is_text(self.screen, binding.key)):
                    keys[binding.id] = key
                    (dead.add if is_text(self.screen, binding.key) else dead.discard)(binding.id)
        self.draw(keys_content(keys, self.size.width))


def _place(active: tuple[DOMNode, Binding, bool, str]) -> tuple[int, int]:
    node, binding = active[:2]
    return 2 if isinstance(node, App) else 1 if isinstance(node, Screen) else 0, _ORDER.get(binding.id or "", 0)


def keys_content(keys: dict[str, Key], width: int) -> Content:
    """Keys by binding id as one line of `width` cells; the help also has keys that don't fit."""
    kept = [*(name for name in keys if name.endswith(_BACK)), _HELP]
    ways = Content("  ").join(_key(keys[name]) for name in kept if name in keys)
    last = _key(keys[_QUIT]) if _QUIT in keys else Content("")
    room = width - ways.cell_length - last.cell_length - 3
    enter = next((name for name, key in keys.items() if key.key == "Enter" and name not in kept), "")
    reserved = _key(keys[enter]).cell_length + 2 if enter else 0  # the keys before Enter leave room for it
    line = Content("")
    for name, key in keys.items():
        reserved = 0 if name == enter else reserved
        grown = line + " " + _key(key) + " "
        if name not in (*kept, _QUIT) and grown.cell_length + reserved <= room:
            line = grown
    line = line + " " + ways
    return Content.assemble(line, " " * max(0, width - line.cell_length - last.cell_length - 1), last)


def _key(key: Key) -> Content:
    return Content.assemble((key.key, "bold $accent" if key.possible else DIM), " ", (key.word, DIM))
