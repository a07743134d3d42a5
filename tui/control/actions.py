"""Makes bindings, key names and palette commands from the key map."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar, Final

from textual.actions import parse
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widget import Widget

from tui.control.keymap import Action

NAMED_CHARACTERS: Final = (
    *("slash", "question_mark", "left_square_bracket", "right_square_bracket", "space"),
    *("less_than_sign", "greater_than_sign", "colon"),
)


def bindings(actions: tuple[Action, ...]) -> list[Binding]:
    """Textual bindings for the actions that have keys: one binding per key, the preferred key first."""
    return [
        Binding(key, a.run, a.word, show=a.footer, priority=a.priority, id=a.id, tooltip=a.title)
        for a in actions
        if a.keys
        for key in in_order(a.keys, sys.platform)
    ]


class KeyOwner:
    """A mixin: `ACTIONS` of a subclass become its bindings, in addition to those of its base classes."""

    ACTIONS: ClassVar[tuple[Action, ...]] = ()
    BINDINGS: ClassVar[list[BindingType]] = []

    def __init_subclass__(cls, **options: Any) -> None:
        if "ACTIONS" in cls.__dict__:
            cls.BINDINGS = [*bindings(cls.ACTIONS)]
        super().__init_subclass__(**options)


def in_order(keys: str, system: str) -> list[str]:
    """The keys of an action in order of preference: on a Mac, F keys come last. `system` is `sys.platform`."""
    return sorted(keys.split(","), key=lambda key: system == "darwin" and is_f_key(key))


def is_f_key(key: str) -> bool:
    return key[:1] == "f" and key[1:].isdigit()


def is_text(screen: Screen[Any], key: str) -> bool:
    is_printable = len(key) == 1 or key in NAMED_CHARACTERS
    return is_printable and screen.focused is not None and screen.focused.check_consume_key(key, "x")


def keys_of(actions: tuple[Action, ...], *runs: str) -> str:
    chosen = [next(a for a in actions if a.run.removeprefix("app.") == run) for run in runs]
    return " · ".join(f"{key_title(in_order(a.keys, sys.platform)[0])} {a.word}" for a in chosen)


_KEY_TITLES: Final = {
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "question_mark": "?",
    "slash": "/",
    "colon": ":",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "escape": "Esc",
    "pageup": "PgUp",
    "pagedown": "PgDn",
}
_ARROWS: Final = {"left": "←", "right": "→", "up": "↑", "down": "↓"}


def key_title(key: str, *, arrows: bool = False) -> str:
    """The name of a key: "ctrl+r" is Ctrl+R, "left_square_bracket" is [; "left" is Left, or ← with `arrows`."""
    titles = _KEY_TITLES | _ARROWS if arrows else _KEY_TITLES
    parts = [key] if len(key) == 1 else key.split("+")
    return "+".join(part if len(key) == 1 else titles.get(part, part.capitalize()) for part in parts)


# moving the cursor or the focus needs the keys, not a command
_MOVES = ("scroll_", "cursor_", "app.focus")


def palette(app: App[Any], screen: Screen[Any]) -> Iterator[SystemCommand]:
    """Every action that can run on `screen`. If widgets share a table, the focused one gets the action."""
    focused = screen.focused.ancestors_with_self if screen.focused is not None else []
    owners: dict[tuple[Action, ...], list[DOMNode]] = {}
    for node in (app, screen, *screen.query("*").results(Widget)):
        if (actions := getattr(node, "ACTIONS", ())) and all(n.display for n in node.ancestors_with_self):
            owners.setdefault(actions, []).append(node)
    titles: set[str] = set()
    for actions, nodes in owners.items():
        owner = next((n for n in nodes if n in focused), nodes[0] if len(nodes) == 1 else None)
        for action in actions if owner is not None else ():
            if not action.run.startswith(_MOVES) and action.id != "mc.palette" and action.title not in titles:
                titles.add(action.title)
                run = partial(app.run_action, action.run, owner)
                yield SystemCommand(action.title, _help(app, owner or app, action), run, discover=owner is app)


def why_not(app: App[Any], node: DOMNode, run: str) -> str:
    """Why `node` can't do an action now; "" if it can. An owner's `why_not` gets the action's short name."""
    owner, _, _ = parse(run)
    target = {"app": app, "screen": app.screen}.get(owner, node)
    asked = getattr(target, "why_not", None)
    return asked(run.removeprefix(f"{owner}.")) if asked is not None else ""


def word_of(node: DOMNode, run: str) -> str:
    """The current word of an action, "" for the one in its table. Owners of actions may define `word_of`."""
    asked = getattr(node, "word_of", None)
    return asked(run) if asked is not None else ""


def _help(app: App[Any], owner: DOMNode, action: Action) -> str:
    key = f"Key: {key_title(in_order(action.keys, sys.platform)[0])}" if action.keys else "No key"
    why = why_not(app, owner, action.run)
    return f"{key}\n{why}" if why else key
