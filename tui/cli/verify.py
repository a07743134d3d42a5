"""`macluster verify`: everything that can be proved on this very Mac, as a report that holds nothing private."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable

Command = Callable[[argparse.Namespace], Awaitable[int]]


def add_options(verify: argparse.ArgumentParser, fact: Callable[[argparse.ArgumentParser, Command], None]) -> None:
    """`fact` adds `--json`, and says what runs it."""
    verify.add_argument("--with", dest="mac", default="", metavar="MAC", help="also the link to this paired Mac")
    verify.add_argument("--host", default="0.0.0.0", help="the address to look at (default: all interfaces)")
    fact(verify, run)


async def run(args: argparse.Namespace) -> int:
    """Every check, one after the other; 1 where one failed."""
    # it brings Textual and more along, which no other command needs
    from tui.cli.verify_report import report

    return await report(args)
