"""Costs at three sizes each, and the exponents with which they grow; `curves` has the table."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from core.bench.results import cores, end_in_order, system
from tests.benches.figures import reach
from tests.benches.growth.curve import Curve, exponent
from tests.benches.growth.curves import CURVES
from tests.benches.results import Result, print_result

FIGURES: Final = Path(__file__).parents[1] / "FIGURES.md"
HEADING: Final = "## Growth (`growth`)"


class GrowthResult(Result, frozen=True, kw_only=True):
    """`curves`: the costs by name; a ratio is an exponent."""

    curves: dict[str, dict[str, Any]]


def measure(names: Collection[str]) -> GrowthResult:
    curves = {name: CURVES[name] for name in names}
    costs = {name: tuple(_cost(curve, size) for size in curve.sizes) for name, curve in curves.items()}
    ratios = {name: exponent(curve.sizes, costs[name]) for name, curve in curves.items()}
    return GrowthResult(
        ratios=ratios,
        reach={name: reach(ratios[name], at_most=curve.at_most) for name, curve in curves.items()},
        cores=cores(),
        system=system(),
        curves={
            name: {"of": curve.words, "sizes": list(curve.sizes), "costs": list(costs[name]), "unit": curve.unit}
            for name, curve in curves.items()
        },
    )


def _cost(curve: Curve, size: int) -> float:
    with TemporaryDirectory(prefix="macluster-growth-") as folder:
        return curve.measure(Path(folder), size)


def described(result: GrowthResult) -> list[str]:
    """The rows of a Markdown table."""
    rows = []
    for name, curve in result.curves.items():
        sizes = ", ".join(f"{size:,}" for size in curve["sizes"])
        costs = ", ".join(f"{cost:,.0f}" if cost >= 100 else f"{cost:.2g}" for cost in curve["costs"])
        aim = result.reach[name]
        rows.append(
            f"| `{name}` | {curve['of']} | {sizes} | {costs} {curve['unit']} "
            f"| {result.ratios[name]:.2f} | ≤ {aim.limit:g} |"
        )
    return ["| curve | of | sizes | cost | exponent | target |", "|---|---|---|---|---|---|", *rows]


def written(text: str, result: GrowthResult) -> str:
    """The text of FIGURES.md with the rows of this result; rows of other curves stay."""
    fresh = described(result)
    before, _, rest = text.partition(f"{HEADING}\n")
    ours, mark, after = rest.partition("\n## ")
    kept = [line for line in ours.splitlines() if (n := re.match(r"\| `(\w+)`", line)) and n[1] not in result.curves]
    words = f"{result.system}, {result.cores} busy cores. An exponent of 0 is flat, of 1 as much work as things."
    section = "\n".join([f"{HEADING}\n", words, "", *fresh[:2], *sorted([*kept, *fresh[2:]])])
    return f"{before.rstrip()}\n\n{section}\n{mark}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of this bench."""
    parser = argparse.ArgumentParser(prog="macluster bench growth", description="How costs grow with a home.")
    parser.add_argument("names", nargs="*", metavar="CURVE", help=f"only these of {', '.join(CURVES)}")
    parser.add_argument("--write", action="store_true", help="write the rows into FIGURES.md")

    def run(args: argparse.Namespace) -> GrowthResult:
        if unknown := set(args.names) - set(CURVES):
            parser.error(f"there is no curve {', '.join(sorted(unknown))}")
        result = measure(args.names or list(CURVES))
        if args.write:
            FIGURES.write_text(written(FIGURES.read_text("utf-8"), result), "utf-8")
        return result

    return print_result(parser, run, lambda result: "\n".join(described(result)), arguments)


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
