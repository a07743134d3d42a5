"""`macluster bench NAME`: the one list of benches; each runs in a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
from pathlib import Path
from runpy import run_path
from typing import Final, NamedTuple

from tui.cli.output import prints_facts

#: benches for developers lie here in a checkout; a wheel does not contain them
CHECKOUT: Final = Path(__file__).parents[2] / "tests" / "benches"


class Bench(NamedTuple):
    """A bench that the command offers; its module has a command line of its own."""

    name: str
    help: str
    module: str


IN_WHEEL: Final = (
    Bench("pair", "several requests at a time against one after the other, over your Macs", "tui.cli.pair_bench"),
    Bench("scenarios", "ten load tests of the API on simulated clusters, or on any server", "tui.cli.scenarios_bench"),
)


def benches() -> dict[str, Bench]:
    found = [*IN_WHEEL]
    if CHECKOUT.is_dir():
        listed: dict[str, str] = run_path(str(CHECKOUT / "__init__.py"))["BENCHES"]
        found += [Bench(name, words, f"tests.benches.{name}") for name, words in listed.items()]
    return {each.name: each for each in sorted(found)}


def add_options(command: argparse.ArgumentParser) -> None:
    """The bench's name, then its own options."""
    width = max(map(len, benches()))
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.description = "\n".join(f"  {each.name:{width}}  {each.help}" for each in benches().values())
    command.add_argument("name", type=_name, metavar="NAME", help="one of those above")
    own = "its own options: see `macluster bench NAME --help`"
    command.add_argument("options", nargs=argparse.REMAINDER, metavar="OPTION", help=own)
    prints_facts(command, bench)


def _name(text: str) -> str:
    if text not in benches():
        there = "Benches for developers run in a checkout of macluster's repository (tests/benches)."
        raise argparse.ArgumentTypeError(f"there is no {text} here, only {', '.join(benches())}. {there}")
    return text


async def bench(args: argparse.Namespace) -> int:
    """Run a bench in a process of its own, since it imports mlx."""
    command = [sys.executable, "-m", benches()[args.name].module, *(["--json"] if args.json else []), *args.options]
    process = await asyncio.create_subprocess_exec(*command, env={**os.environ, "PYTHONSAFEPATH": "1"})
    try:
        return await process.wait()
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()  # it ends its workers and removes its folder
        await process.wait()
        raise
