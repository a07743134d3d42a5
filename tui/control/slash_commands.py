"""Commands in the prompt: "/model" opens the picker, "/temp 0.7" sets an option."""

from __future__ import annotations

from typing import Final, NamedTuple

SLASH_COMMANDS: Final = {
    "/help": "help",
    "/model": "open('models')",
    "/system": "open('sampling', 'system')",
    "/temp": "open('sampling')",
    "/save": "keep",
    "/new": "new_chat",
    "/quit": "quit",
}
# with a value, these set a sampling option
OPTIONS: Final = {"/temp": "temperature", "/system": "system"}


class OptionTyped(NamedTuple):
    """An option set in the prompt."""

    name: str
    value: str


def alone(text: str) -> str:
    """The command at the start of `text`, if it takes no text after it; else ""."""
    command, _, words = text.partition(" ")
    return command if words.strip() and command in SLASH_COMMANDS and command not in OPTIONS else ""


def option_of(text: str) -> OptionTyped | None:
    """The option in "/temp 0.7" or "/system Be brief."; None for everything else."""
    command, _, value = text.partition(" ")
    name = OPTIONS.get(command)
    return OptionTyped(name, value.strip()) if name and value.strip() else None
