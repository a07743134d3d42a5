"""The key tables of tui/README.md, as Markdown made from the key map."""

from __future__ import annotations

from typing import Final

from tui.control import keymap
from tui.control.actions import in_order, key_title
from tui.control.keymap import Action

_SECTIONS: Final[dict[str, tuple[Action, ...]]] = {
    "Everywhere": keymap.APP,
    "Dashboard": keymap.DASHBOARD,
    "Chat": keymap.CHAT,
    "Prompt": keymap.PROMPT,
    "Macs (pane 1)": keymap.PEERS,
    "Models": (*keymap.MODEL_LIST, *keymap.MODELS),
    "Split": keymap.SPLIT,
    "Topology": keymap.TOPOLOGY_LIST,
    "Hop details": keymap.HOP,
    "Logs": (*keymap.LOGS, *keymap.LOGS_SCREEN),
    "Rows": (*keymap.ROW_LIST, *keymap.BATCH),
    "Timeline": keymap.TIMELINE,
    "API": keymap.API,
    "Trust": keymap.TRUST,
    "Conversations": (*keymap.CONVERSATION_LIST, *keymap.CONVERSATIONS),
    "Recovery": keymap.RECOVERY,
    "Demo": keymap.DEMO,
}
# the same on every screen: one line above the tables lists them
_COMMON: Final = ("app.focus_next", "app.focus_previous", "back", "leave", "cursor_down", "cursor_up", "scroll_down")
_COMMON_TITLES: Final = ("Quit", "Scroll up", "Scroll down", "To the top", "To the end")


def key_table() -> str:
    rows = [f"| {name} | {_keys_of(actions)} |" for name, actions in _SECTIONS.items()]
    return "\n".join(["| Screen | Keys |", "|---|---|", *rows])


def _keys_of(actions: tuple[Action, ...]) -> str:
    """The actions with keys, each once: "`Ctrl+O` Choose a model · `p` Pair"."""
    shown: dict[str, str] = {}
    for action in actions:
        if action.keys and action.run not in _COMMON and action.title not in _COMMON_TITLES:
            keys = " ".join(f"`{key_title(key, arrows=True)}`" for key in in_order(action.keys, "darwin"))
            shown.setdefault(action.title, f"{keys} {action.title}")
    return " · ".join(shown.values())


if __name__ == "__main__":
    print(key_table())
