"""`macluster verify`: checks this Mac and writes a report that holds nothing personal."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from collections.abc import Awaitable, Callable

Command = Callable[[argparse.Namespace], Awaitable[int]]


def add_options(verify: argparse.ArgumentParser, fact: Callable[[argparse.ArgumentParser, Command], None]) -> None:
    """`fact` adds `--json`, and says what runs it."""
    verify.add_argument("--with", dest="mac", default="", metavar="MAC", help="also check the link to this paired Mac")
    verify.add_argument("--host", default="0.0.0.0", help="the address to check (default: all interfaces)")
    fact(verify, run)


async def run(args: argparse.Namespace) -> int:
    """Run every check; status 1 if one failed. A closed terminal ends it as SIGTERM does, so that temporary files are
    removed.
    """
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, os.kill, os.getpid(), signal.SIGTERM)
    # imports Textual and more, which no other command needs
    from tui.cli.verify_report import report

    return await report(args)
