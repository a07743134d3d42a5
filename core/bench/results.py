"""Results of benches: ratios with their targets, printed as text, JSON or Markdown."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from core.errors import MaclusterError

R = TypeVar("R")


class Aim(msgspec.Struct, frozen=True, kw_only=True):
    """Target of a ratio."""

    limit: float
    at_most: bool  # else at least
    reached: bool
    counts: bool = True  # False where the target means nothing on this machine

    @property
    def bound(self) -> str:
        return f"{'at most' if self.at_most else 'at least'} {self.limit:g}"

    @property
    def verdict(self) -> str:
        if not self.counts:
            return "does not count here"
        return "reached" if self.reached else "NOT reached"

    def line(self, name: str, ratio: float) -> str:
        return f"{name}: {ratio:.2f}, target {self.bound}: {self.verdict}"


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Result of any bench; each adds figures of its own."""

    ratios: dict[str, float]
    reach: dict[str, Aim]  # targets of some of the ratios
    cores: int
    system: str

    def verdict(self, ratio: str, words: str) -> str:
        """A line about a ratio that has a target; `words` name the ratio."""
        return self.reach[ratio].line(words, self.ratios[ratio])


def cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def system() -> str:
    return f"{platform.system()} {platform.machine()}"


def print_result(
    parser: argparse.ArgumentParser,
    measure: Callable[[argparse.Namespace], R],
    describe: Callable[[R], str],
    arguments: Sequence[str] | None,
) -> int:
    """Parse the options of a bench, measure, and print the result. Returns the exit status."""
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print one JSON value")
    how.add_argument("--markdown", action="store_true", help="print Markdown tables")
    args = parser.parse_args(arguments)
    try:
        result = measure(args)
    except MaclusterError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    if args.json:
        print(msgspec.json.encode(result).decode())
    elif args.markdown and isinstance(result, Result):
        print(markdown(parser.prog, result))
    else:
        print(describe(result))
    return 0


def markdown(title: str, result: Result) -> str:
    """Ratios with their targets, then a table for each field that holds a row of figures per name."""
    ratios = (
        (name, _cell(ratio), aim.bound if aim else "", aim.verdict if aim else "")
        for name, ratio in result.ratios.items()
        for aim in [result.reach.get(name)]
    )
    lines = [f"`{title}`: {result.system}, {result.cores} cores", *_table(("ratio", "seen", "target", ""), ratios)]
    fields: dict[str, Any] = msgspec.to_builtins(result)
    for field, rows in fields.items():
        if field in Result.__struct_fields__ or not isinstance(rows, dict):
            continue
        figures = {name: row for name, row in rows.items() if isinstance(row, dict)}
        heads = list(next(iter(figures.values()), {}))
        if heads:
            cells = ((name, *(_cell(row[head]) for head in heads)) for name, row in figures.items())
            lines += _table((field, *heads), cells)
    return "\n".join(lines)


def _table(heads: Sequence[str], rows: Iterator[Sequence[str]]) -> list[str]:
    return ["", *(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows))]


def _cell(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_cell, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def end_in_order() -> None:
    """Let SIGTERM unwind as Ctrl+C does, so that workers and temporary folders go with the bench."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number
