"""`macluster verify`: everything that can be proved on this very Mac, as a report that holds nothing personal."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from collections.abc import Awaitable, Callable

Command = Callable[[argparse.Namespace], Awaitable[int]]


def add_options(verify: argparse.ArgumentParser, fact: Callable[[argparse.ArgumentParser, Command], None]) -> None:
    """`fact` adds `--json`, and says what runs it."""
    verify.add_argument("--with", dest="mac", default="", metavar="MAC", help="also the link to this paired Mac")
    verify.add_argument("--host", default="0.0.0.0", help="the address to look at (default: all interfaces)")
    fact(verify, run)


async def run(args: argparse.Namespace) -> int:
    """Every check, one after the other; 1 where one failed. A terminal that is closed ends it as SIGTERM does, so that
    what it made for the checks goes.
    """
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, os.kill, os.getpid(), signal.SIGTERM)
    # it brings Textual and more along, which no other command needs
    from tui.cli.verify_report import report

    return await report(args)
