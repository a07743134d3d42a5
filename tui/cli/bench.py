"""`macluster bench NAME`: the benches of users; each runs in a process of its own. Others are in tests/benches."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
from typing import Final

from tui.cli.output import prints_facts

BENCHES: Final = {
    "pair": ("tui.cli.pair_bench", "several requests at a time against one after the other, over your Macs"),
    "scenarios": ("tui.cli.scenarios_bench", "ten load tests of the API on simulated clusters, or on any server"),
}


def add_options(command: argparse.ArgumentParser) -> None:
    """The bench's name, then its own options."""
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.description = "\n".join(f"  {name:9}  {words}" for name, (_, words) in BENCHES.items())
    command.add_argument("name", choices=tuple(BENCHES), metavar="NAME", help="one of those above")
    own = "its own options: see `macluster bench NAME --help`"
    command.add_argument("options", nargs=argparse.REMAINDER, metavar="OPTION", help=own)
    prints_facts(command, bench)


async def bench(args: argparse.Namespace) -> int:
    """Run a bench in a process of its own, since it imports mlx."""
    command = [sys.executable, "-m", BENCHES[args.name][0], *(["--json"] if args.json else []), *args.options]
    process = await asyncio.create_subprocess_exec(*command, env={**os.environ, "PYTHONSAFEPATH": "1"})
    try:
        return await process.wait()
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()  # it ends its workers and removes its folder
        await process.wait()
        raise
