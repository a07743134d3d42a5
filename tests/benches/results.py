"""Results of the benches of this repository: ratios with their targets, printed as text, JSON or Markdown."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from core.bench import results

R = TypeVar("R", bound="Result")


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


def print_result(
    parser: argparse.ArgumentParser,
    measure: Callable[[argparse.Namespace], R],
    describe: Callable[[R], str],
    arguments: Sequence[str] | None,
) -> int:
    """Like `core.bench.results.print_result`, with `--markdown`."""
    parser.add_argument("--markdown", action="store_true", help="print Markdown tables")
    is_markdown = False

    def measured(args: argparse.Namespace) -> R:
        nonlocal is_markdown
        is_markdown = args.markdown
        return measure(args)

    def described(result: R) -> str:
        return markdown(parser.prog, result) if is_markdown else describe(result)

    return results.print_result(parser, measured, described, arguments)


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
