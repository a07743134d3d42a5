"""How the commands print: lines for people, one JSON object for programs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec

Command = Callable[[argparse.Namespace], Awaitable[int | None]]  # returns the exit status; None is 0
Facts = dict[str, Any]


def prints_facts(command: argparse.ArgumentParser, run: Command) -> None:
    """Let `run` do the command; it prints lines, or one JSON value with `--json`."""
    command.add_argument("--json", action="store_true", help="print one JSON value")
    command.set_defaults(run=run)


def print_facts(args: argparse.Namespace, facts: object, lines: Sequence[str]) -> None:
    print(to_json(facts) if args.json else "\n".join(lines))


def print_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def fields_of(value: object, *names: str) -> Facts:
    """Some fields of a value as JSON facts."""
    return {name: getattr(value, name) for name in names}


def to_json(facts: object) -> str:
    return msgspec.json.encode(facts).decode()


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, left: Sequence[int] = (0,)) -> list[str]:
    """Lines of columns, those of the numbers `left` to the left, the others to the right."""
    cells = [list(head), *(list(r) for r in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    return [
        "  ".join(
            c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
