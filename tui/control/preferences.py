"""User settings: reads `config.toml`, and stores the last chosen theme."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec

from core.errors import TrustError
from core.mac.prevent_sleep import WHEN_AWAKE, WhenAwake
from core.settings import Home

if TYPE_CHECKING:
    from core.trust.file_formats import JsonFile

_Kind = type[str] | type[bool] | tuple[str, ...]  # some text, a switch, or one of these words

# settings of each table of the file
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
FULL_FPS: Final = 30
SSH_FPS: Final = 15
SLOW_FPS: Final = 5
NO_KEYS: Final[Mapping[str, str]] = MappingProxyType({})


class Preferences(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of `config.toml`, and the remembered theme."""

    theme: str = ""  # from the file, "" for none
    remembered: str = ""  # chosen last, "" for none
    plain: bool = False
    slow_link: bool = False
    spare_worker: bool = True  # keep a second worker ready
    wired_memory: bool = True  # keep loaded weights wired
    awake: WhenAwake = "loaded"  # when the Mac must not sleep
    serve: bool = False  # turn the API on
    allow_load: bool = False  # API clients may load models
    relay: bool = True  # one Mac answers for another
    keys: Mapping[str, str] = NO_KEYS  # keys by binding id
    complaints: tuple[str, ...] = ()  # a sentence for each line that can't be used

    def frames_per_s(self, environ: Mapping[str, str]) -> int:
        """How often a growing text is drawn; over SSH every repaint crosses the network."""
        if self.slow_link:
            return SLOW_FPS
        return SSH_FPS if environ.get("SSH_CONNECTION") else FULL_FPS


DEFAULTS: Final = Preferences()


def config_file() -> Path:
    """`$XDG_CONFIG_HOME/macluster/config.toml`, by default in `~/.config`, on a Mac too."""
    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(folder).expanduser() / "macluster" / "config.toml"


def read(file: Path, memory: Path) -> Preferences:
    """The settings of the config file that are valid, and the remembered theme; either file may be missing."""
    remembered = _remembered(memory)
    try:
        text = file.read_text(encoding="utf-8")
        found = tomllib.loads(text)
    except FileNotFoundError:
        return Preferences(remembered=remembered)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        return Preferences(remembered=remembered, complaints=(f"{file.name} can't be read: {why}.",))
    choices, complaints = _choices(found, text)
    keys, more = _keys(found.get("keys"), text)
    strange = [f"{_where(text, name)} unknown section [{name}]." for name in found if name not in (*_KINDS, "keys")]
    all_complaints = (*complaints, *more, *strange)
    known = {"remembered": remembered, "keys": keys, "complaints": all_complaints}
    return msgspec.convert({**choices, **known}, Preferences)


def remember_theme(memory: Path, theme: str) -> None:
    """Save the theme for the next start. Raises TrustError."""
    from core.trust.private_files import private_folder

    private_folder(memory.parent)
    _memory().write(memory, theme)


def _remembered(memory: Path) -> str:
    try:
        return _memory().read(memory)
    except TrustError:
        return ""


def _memory() -> JsonFile[str]:
    from core.trust.file_formats import JsonFile  # not needed for the first frame

    return JsonFile[str](Home.theme, str)


def _choices(found: Mapping[str, object], text: str) -> tuple[dict[str, str | bool], list[str]]:
    choices: dict[str, str | bool] = {}
    complaints = []
    for title, kinds in _KINDS.items():
        table = found.get(title)
        for name, value in table.items() if isinstance(table, dict) else ():
            if name not in kinds:
                complaints.append(
                    f"{_where(text, name)} unknown setting {name!r} in [{title}]; known: {', '.join(kinds)}."
                )
            elif not _is_of(value, kinds[name]):
                complaints.append(f"{_where(text, name)} {name} must be {_needs(kinds[name])}.")
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
    if not isinstance(table, dict):
        return {}, []
    from tui.control.chosen_keys import chosen_keys  # textual, for a command that draws nothing, is half of its start

    keys, complaints = chosen_keys(table)
    return keys, [f"{_where(text, name)} {why}" for name, why in complaints]


def _where(text: str, name: str) -> str:
    pattern = re.compile(rf'^\s*\[?\s*["\']?{re.escape(name)}["\']?\s*[=\].]')
    line = next((n for n, line in enumerate(text.splitlines(), 1) if pattern.match(line)), 0)
    return f"config.toml, line {line}:" if line else "config.toml:"
