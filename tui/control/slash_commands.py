"""Words in the prompt that are commands and no questions: "/model" opens the picker, "/temp 0.7" sets that."""

from __future__ import annotations

from typing import Final, NamedTuple

SLASH_COMMANDS: Final = {
    "/help": "help",
    "/model": "open('models')",
    "/system": "open('sampling')",
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


def option_of(text: str) -> OptionTyped | None:
    """What "/temp 0.7" or "/system Be brief." asks for; None for all else."""
    command, _, value = text.partition(" ")
    name = OPTIONS.get(command)
    return OptionTyped(name, value.strip()) if name and value.strip() else None
