"""`macluster completions SHELL`: shell completions for commands, options and files."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

WHERE: Final = {
    "zsh": 'macluster completions zsh > "${fpath[1]}/_macluster"',
    "bash": "macluster completions bash > ~/.local/share/bash-completion/completions/macluster",
    "fish": "macluster completions fish > ~/.config/fish/completions/macluster.fish",
}


def add_options(command: argparse.ArgumentParser, whole: Callable[[], argparse.ArgumentParser]) -> None:
    """`whole` makes the parser of all commands."""
    command.epilog = "\n".join(["To install them:", *(f"  {line}" for line in WHERE.values())])
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.add_argument("shell", choices=tuple(WHERE))

    async def show(args: argparse.Namespace) -> None:
        print(script(whole(), args.shell))

    command.set_defaults(run=show)


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The completion script for `shell`; options that take a path complete files."""
    import shtab

    for action in _actions(parser):
        if action.type is Path:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    return str(shtab.complete(parser, shell))


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from _actions(each)
