"""Renders tui/cli/README.md from the parser: `python -m tests.command_reference > tui/cli/README.md`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from tui.cli.parser import parser

INTRODUCTION = """\
# The `macluster` command

Generated from the parser by `python -m tests.command_reference > tui/cli/README.md`.

Commands that print facts take `--json`. Exit status: 0 done, 1 failed, 2 wrong use. The state lies in `~/.macluster`;
`--home DIR` or `$MACLUSTER_HOME` names another folder. Models are read from `~/.macluster/models`, and from the folders
of `macluster node --models DIR` or else the Hugging Face cache. Settings are in `~/.config/macluster/config.toml`.
"""


def command_reference() -> str:
    """The README: every command with its arguments and options, as Markdown."""
    top = parser()
    lines = [INTRODUCTION, "## Options before a command", "", *_options(top)]
    for name, words, command in _commands(top):
        lines += ["", f"## `macluster {name}`", "", f"{words[:1].upper()}{words[1:]}.", *_section(command)]
        for part, part_words, below in _commands(command):
            lines += ["", f"### `macluster {name} {part}`", "", f"{part_words[:1].upper()}{part_words[1:]}."]
            lines += _section(below)
    return "\n".join(lines) + "\n"


def _section(command: argparse.ArgumentParser) -> list[str]:
    options = _options(command)
    return ["", *options] if options else []


def _commands(command: argparse.ArgumentParser) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            words = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, below in action.choices.items():
                yield name, words.get(name, ""), below


def _options(command: argparse.ArgumentParser) -> list[str]:
    rows = [
        f"| `{_shown(action)}` | {_help(action)} |"
        for action in command._actions
        if action.help != argparse.SUPPRESS
        and not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
        and action.dest != "json"
    ]
    return ["| option | meaning |", "|---|---|", *rows] if rows else []


def _shown(action: argparse.Action) -> str:
    """An option as it is typed, such as `--port PORT`."""
    value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
    flags = ", ".join(action.option_strings)
    text = f"{flags} {value}" if flags and action.nargs != 0 else flags or str(value)
    return text.replace("|", "\\|")


def _help(action: argparse.Action) -> str:
    fields = {**vars(action), "choices": ", ".join(map(str, action.choices or ()))}
    return ((action.help or "") % {**fields, "prog": "macluster"}).replace("|", "\\|")


if __name__ == "__main__":
    print(command_reference(), end="")
