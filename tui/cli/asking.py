"""Questions to the user at a terminal: confirmations and choices."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping

from core.errors import UsageError
from core.text import clean_text


def can_ask(command: argparse.ArgumentParser) -> None:
    """Add `--yes` to a command that asks for confirmation."""
    command.add_argument("--yes", action="store_true", help="do it without asking")


async def agreed(args: argparse.Namespace, what: str) -> bool:
    """Ask for confirmation in a terminal; raise UsageError without one."""
    if args.yes:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{clean_text(what)} There is no terminal to confirm it.", "Add --yes to do it.")
    print(clean_text(f"{what} Type yes to do it: "), end="", file=sys.stderr, flush=True)
    if (await asyncio.to_thread(sys.stdin.readline)).strip().lower() == "yes":
        return True
    print("Nothing was changed.", file=sys.stderr)
    return False


async def choice_of(choices: Mapping[str, str]) -> str:
    """Let the user type one of the keys of `choices`; the first is the default."""
    for word, what in choices.items():
        print(clean_text(f"  {word}: {what}"), file=sys.stderr)
    first = next(iter(choices))
    print(f"{' or '.join(choices)}? [{first}] ", end="", file=sys.stderr, flush=True)
    said = (await asyncio.to_thread(sys.stdin.readline)).strip().lower()
    return said if said in choices else first
