"""`macluster bench NAME`: the one list of benches; each runs in a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import Final, NamedTuple

from tui.cli.output import prints_facts

#: benches for developers lie here in a checkout; a wheel does not contain them
CHECKOUT: Final = Path(__file__).parents[2] / "tests" / "benches"


class Bench(NamedTuple):
    """A bench that the command offers; its module has a command line of its own."""

    name: str
    help: str
    module: str


def _for_developers(name: str, words: str) -> Bench:
    return Bench(name, words, f"tests.benches.{name}")


IN_WHEEL: Final = (
    Bench("pair", "several requests at a time against one after the other, over your Macs", "tui.cli.pair_bench"),
    Bench("scenarios", "ten load tests of the API on simulated clusters, or on any server", "tui.cli.scenarios_bench"),
)
FOR_DEVELOPERS: Final = (
    _for_developers("batch", "eight rows against one, and lanes against one lane"),
    _for_developers("beside", "prefill on a fast Mac next to a ring of slow ones"),
    _for_developers("comms", "reduces of a tensor plan, sealed against plain"),
    _for_developers("compare", "this ring against mlx_lm, its server and its pipeline"),
    _for_developers("copy", "a sealed copy between two nodes against plain TCP"),
    _for_developers("forecast", "predicted speed against measured speed"),
    _for_developers("hop", "a sealed hop of 8 KiB against plain TCP"),
    _for_developers("loop", "the engine's loop without a ring against mlx_lm"),
    _for_developers("plain", "a sealed ring of two stages against mlx-lm's plain pipeline"),
    _for_developers("prefill", "several prompt chunks in flight against one"),
    _for_developers("reuse", "later turns of a conversation with and without the prefix cache"),
    _for_developers("schema", "answers in a JSON schema against free text"),
    _for_developers("solo", "two stages and one worker against mlx_lm in one process"),
    _for_developers("speculate", "drafted tokens against plain decoding"),
    _for_developers("tensor", "two tensor ranks against one process and two stages"),
    _for_developers("topology", "private, forward and reverse against each other"),
    _for_developers("trace", "decoding with phase tracing against without"),
    _for_developers("tui", "first frame, key to paint and idle CPU of the UI"),
)


def benches() -> dict[str, Bench]:
    found = (*IN_WHEEL, *FOR_DEVELOPERS) if CHECKOUT.is_dir() else IN_WHEEL
    return {each.name: each for each in sorted(found)}


def add_options(command: argparse.ArgumentParser) -> None:
    """The bench's name, then its own options."""
    width = max(map(len, benches()))
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.description = "\n".join(f"  {each.name:{width}}  {each.help}" for each in benches().values())
    command.add_argument("name", type=_name, choices=tuple(benches()), metavar="NAME", help="one of those above")
    own = "its own options: see `macluster bench NAME --help`"
    command.add_argument("options", nargs=argparse.REMAINDER, metavar="OPTION", help=own)
    prints_facts(command, bench)


def _name(text: str) -> str:
    if text not in benches() and any(each.name == text for each in FOR_DEVELOPERS):
        raise argparse.ArgumentTypeError(
            f"{text} is a bench for developers: run it in a checkout of macluster's repository (tests/benches)."
        )
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
