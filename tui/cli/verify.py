"""`macluster verify`: checks everything that can be proved on this Mac; the report holds nothing personal."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal

from tui.cli.output import prints_facts


def add_options(verify: argparse.ArgumentParser) -> None:
    verify.add_argument("--with", dest="mac", default="", metavar="MAC", help="check the link to this paired Mac too")
    verify.add_argument("--host", default="0.0.0.0", help="address to check (default: all interfaces)")
    prints_facts(verify, run)


async def run(args: argparse.Namespace) -> int:
    """Run every check; the status is 1 if one failed. SIGHUP too deletes the temporary files."""
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, os.kill, os.getpid(), signal.SIGTERM)
    # it imports Textual and more, which no other command needs
    from tui.cli.verify_report import report

    return await report(args)
