"""Reads the table [keys] of `config.toml`: the user's keys for actions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from textual.keys import Keys, _character_to_key

from tui.control.actions import key_title
from tui.control.keymap import APP, DASHBOARD, TABLES

PREFIX: Final = "mc."
# a terminal sends the same byte for both
_TWINS: Final = {
    "ctrl+m": "Enter",
    "ctrl+i": "Tab",
    "ctrl+h": "Backspace",
    "ctrl+left_square_bracket": "Esc",
}
_KNOWN_KEYS: Final = {key.value for key in Keys if not key.value.startswith("<")}
# these reach the app only in terminals with kitty's protocol
_RARE_KEYS: Final = re.compile(r"ctrl\+shift\+|shift\+(enter|escape|backspace)|ctrl\+\d|alt\+|super\+|meta\+|hyper\+")
_NAMES: Final = {_character_to_key(chr(code)) for code in range(33, 127)}
ACTIONS: Final = {a.id.removeprefix(PREFIX): a for table in TABLES for a in table if a.keys}


def chosen_keys(table: Mapping[str, object]) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Keys by binding id, and each line that can't be used with the reason. Changes no key."""
    wanted: dict[str, tuple[str, ...]] = {}
    complaints: list[tuple[str, str]] = []
    for name, value in table.items():
        chosen = tuple(_named(key.strip()) for key in value.split(",")) if isinstance(value, str) else ()
        if why := _why_not(name, chosen):
            complaints.append((name, why))
        else:
            wanted[PREFIX + name] = chosen
    while clash := next(filter(None, (_clash(name, wanted) for name in wanted)), None):
        name, why = clash
        complaints.append((name.removeprefix(PREFIX), why))
        del wanted[name]
    return {name: ",".join(chosen) for name, chosen in wanted.items()}, complaints


def _why_not(name: str, chosen: tuple[str, ...]) -> str:
    if name not in ACTIONS:
        close = get_close_matches(name, ACTIONS, 1)
        return f"Unknown action {name!r}.{f' Did you mean {close[0]!r}?' if close else ''}"
    if not all(chosen) or not chosen:
        return f"{name} needs its keys in quotes, separated by commas."
    for key in chosen:
        if key in _TWINS:
            return f"A terminal can't tell {key_title(key)} from {_TWINS[key]}."
        if _RARE_KEYS.match(key):
            return f"Not every terminal sends {key_title(key)}."
        if len(key) > 1 and key not in _KNOWN_KEYS and key not in _NAMES:
            return f"Unknown key {key!r}. Keys are written like f5, ctrl+k, slash or x."
    return ""


def _clash(name: str, wanted: Mapping[str, tuple[str, ...]]) -> tuple[str, str] | None:
    """An action and why it can't have its keys. Keys of one table, and those of app and dashboard, must differ."""
    table = next(table for table in TABLES if any(a.id == name for a in table))
    for other in (*table, *APP, *(DASHBOARD if table == APP else ())):
        taken = set(wanted.get(other.id, other.keys.split(","))) & set(wanted[name])
        if other.id != name and taken:
            return name, f"{key_title(taken.pop())} is already the key of {other.id.removeprefix(PREFIX)!r}."
    return None


def _named(key: str) -> str:
    *held, last = key.split("+") if len(key) > 1 else (key,)
    return "+".join([*(name.lower() for name in held), _character_to_key(last) if len(last) == 1 else last.lower()])
