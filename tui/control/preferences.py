"""What the person set: `config.toml`, which is only read, and the theme that was chosen last, which is remembered."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec
from textual.keys import Keys, _character_to_key

from core.mac.awake import WHEN_AWAKE, WhenAwake
from tui.control.actions import key_title
from tui.control.keymap import APP, DASHBOARD, TABLES

_Kind = type[str] | type[bool] | tuple[str, ...]  # some text, a switch, or one of these words

# what each table of the file knows
_KINDS: Final[Mapping[str, Mapping[str, _Kind]]] = {
    "tui": {"theme": str, "plain": bool, "slow_link": bool},
    "node": {
        "spare_worker": bool,
        "wired_memory": bool,
        "awake": WHEN_AWAKE,
        "serve": bool,
        "allow_load": bool,
        "relay": bool,
    },
}
NO_KEYS: Final[Mapping[str, str]] = MappingProxyType({})
PREFIX: Final = "mc."
# one byte stands for both of them in a terminal
_TWINS: Final = {
    "ctrl+m": "Enter",
    "ctrl+i": "Tab",
    "ctrl+h": "Backspace",
    "ctrl+left_square_bracket": "Esc",
}
_KNOWN_KEYS: Final = {key.value for key in Keys if not key.value.startswith("<")}
# these reach the app only where the terminal speaks the protocol of kitty
_RARE_KEYS: Final = re.compile(r"ctrl\+shift\+|shift\+(enter|escape|backspace)|ctrl\+\d|alt\+|super\+|meta\+|hyper\+")


class Preferences(msgspec.Struct, frozen=True, kw_only=True):
    """`theme` is what the file names, `remembered` what was chosen last ("" for none). `spare_worker`: whether this
    Mac's node keeps a second worker ready; `wired_memory`: whether what is loaded stays wired; `awake`: when it does
    not fall asleep; `serve`: whether it serves other programs; `allow_load`: whether these may have another model
    loaded; `relay`: whether one Mac answers what programs ask another for. `keys`: keys by the id of a binding.
    `complaints`: a sentence for every line of the file that could not be followed.
    """

    theme: str = ""
    remembered: str = ""
    plain: bool = False
    slow_link: bool = False
    spare_worker: bool = True
    wired_memory: bool = True
    awake: WhenAwake = "loaded"
    serve: bool = False
    allow_load: bool = False
    relay: bool = True
    keys: Mapping[str, str] = NO_KEYS
    complaints: tuple[str, ...] = ()


DEFAULTS: Final = Preferences()


def config_file() -> Path:
    """`$XDG_CONFIG_HOME/macluster/config.toml`, by default below `~/.config`, on a Mac too."""
    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(folder).expanduser() / "macluster" / "config.toml"


def read(file: Path, memory: Path) -> Preferences:
    """What the file asks for, all of it that can be followed, and what `memory` remembers; either need not exist."""
    remembered = _remembered(memory)
    try:
        text = file.read_text(encoding="utf-8")
        found = tomllib.loads(text)
    except FileNotFoundError:
        return Preferences(remembered=remembered)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        return Preferences(remembered=remembered, complaints=(f"{file.name} is not used: {why}.",))
    choices, complaints = _choices(found, text)
    keys, more = _keys(found.get("keys", {}), text)
    strange = [f"{_where(text, name)} [{name}] means nothing here." for name in found if name not in (*_KINDS, "keys")]
    all_complaints = (*complaints, *more, *strange)
    known = {"remembered": remembered, "keys": keys, "complaints": all_complaints}
    return msgspec.convert({**choices, **known}, Preferences)


def memory_in(folder: Path) -> Path:
    """The file that remembers the theme, in a state folder."""
    return folder / "tui.json"


def remember_theme(memory: Path, theme: str) -> None:
    """Keep it for the next start, in one step. Raises OSError."""
    memory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = memory.with_suffix(".new")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        json.dump({"theme": theme}, out)
        out.flush()
        os.fsync(handle)
    fresh.replace(memory)


def _remembered(memory: Path) -> str:
    try:
        theme = json.loads(memory.read_text(encoding="utf-8"))["theme"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return theme if isinstance(theme, str) else ""


def _choices(found: Mapping[str, object], text: str) -> tuple[dict[str, str | bool], list[str]]:
    choices: dict[str, str | bool] = {}
    complaints = []
    for title, kinds in _KINDS.items():
        table = found.get(title)
        for name, value in table.items() if isinstance(table, dict) else ():
            if name not in kinds:
                complaints.append(f"{_where(text, name)} [{title}] knows no {name!r}; it knows {', '.join(kinds)}.")
            elif not _is_of(value, kinds[name]):
                complaints.append(f"{_where(text, name)} {name} needs {_needs(kinds[name])}.")
            else:
                choices[name] = value
    return choices, complaints


def _is_of(value: object, kind: _Kind) -> bool:
    return value in kind if isinstance(kind, tuple) else isinstance(value, kind)


def _needs(kind: _Kind) -> str:
    if isinstance(kind, tuple):
        return "one of " + ", ".join(f'"{word}"' for word in kind)
    return "text in quotes" if kind is str else "true or false"


def _keys(table: object, text: str) -> tuple[dict[str, str], list[str]]:
    """Line by line: one that cannot be followed leaves the keys as they were."""
    wanted: dict[str, tuple[str, ...]] = {}
    complaints = []
    for name, value in table.items() if isinstance(table, dict) else ():
        chosen = tuple(_named(key.strip()) for key in value.split(",")) if isinstance(value, str) else ()
        if why := _why_not(name, chosen):
            complaints.append(f"{_where(text, name)} {why}")
        else:
            wanted[PREFIX + name] = chosen
    while clash := next(filter(None, (_clash(name, wanted) for name in wanted)), None):
        name, why = clash
        complaints.append(f"{_where(text, name.removeprefix(PREFIX))} {why}")
        del wanted[name]
    return {name: ",".join(chosen) for name, chosen in wanted.items()}, complaints


def _why_not(name: str, chosen: tuple[str, ...]) -> str:
    if name not in ACTIONS:
        close = get_close_matches(name, ACTIONS, 1)
        return f"There is no action {name!r}{f'; {close[0]!r}?' if close else ''}."
    if not all(chosen) or not chosen:
        return f"{name} needs its keys in quotes, with commas between them."
    for key in chosen:
        if key in _TWINS:
            return f"A terminal cannot tell {key_title(key)} from {_TWINS[key]}."
        if _RARE_KEYS.match(key):
            return f"Not every terminal sends {key_title(key)}."
        if len(key) > 1 and key not in _KNOWN_KEYS and key not in _NAMES:
            return f"There is no key {key!r}; it is written like f5, ctrl+k, slash or x."
    return ""


def _clash(name: str, wanted: Mapping[str, tuple[str, ...]]) -> tuple[str, str] | None:
    """An action, and why it cannot have its keys. Those of one table are there at the same time, and so are those of
    the app and of the dashboard.
    """
    table = next(table for table in TABLES if any(a.id == name for a in table))
    for other in (*table, *APP, *(DASHBOARD if table == APP else ())):
        taken = set(wanted.get(other.id, other.keys.split(","))) & set(wanted[name])
        if other.id != name and taken:
            return name, f"{key_title(taken.pop())} is the key of {other.id.removeprefix(PREFIX)!r} already."
    return None


def _named(key: str) -> str:
    """As Textual calls it: "ctrl+[" is ctrl+left_square_bracket."""
    *held, last = key.split("+") if len(key) > 1 else (key,)
    return "+".join([*(name.lower() for name in held), _character_to_key(last) if len(last) == 1 else last.lower()])


_NAMES: Final = {_character_to_key(chr(code)) for code in range(33, 127)}
ACTIONS: Final = {a.id.removeprefix(PREFIX): a for table in TABLES for a in table if a.keys}


def _where(text: str, name: str) -> str:
    """ "config.toml, line 3:"; tomllib does not say where a key stands."""
    pattern = re.compile(rf'^\s*\[?\s*["\']?{re.escape(name)}["\']?\s*[=\].]')
    line = next((n for n, line in enumerate(text.splitlines(), 1) if pattern.match(line)), 0)
    return f"config.toml, line {line}:" if line else "config.toml:"
