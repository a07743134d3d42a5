"""Words in the prompt that are commands and no questions: "/model" opens the picker, "/temp 0.7" sets that."""

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
# with words behind them they set one of the sampling options
OPTIONS: Final = {"/temp": "temperature", "/system": "system"}


class OptionTyped(NamedTuple):
    """That option is to have that value from now on."""

    name: str
    value: str


def alone(text: str) -> str:
    """The command that begins `text` and takes no words behind it, as somebody typed; "" for all else."""
    command, _, words = text.partition(" ")
    return command if words.strip() and command in SLASH_COMMANDS and command not in OPTIONS else ""


def option_of(text: str) -> OptionTyped | None:
    """What "/temp 0.7" or "/system Be brief." asks for; None for all else."""
    command, _, value = text.partition(" ")
    name = OPTIONS.get(command)
    return OptionTyped(name, value.strip()) if name and value.strip() else None
