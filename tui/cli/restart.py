"""`macluster restart`, which starts this Mac's node again, and `macluster update`, which prints how to update."""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from core.errors import NodeUnreachable, UsageError
from core.mac.installation import update_commands
from core.requests.restart import RestartOrder, RestartReport
from core.text import clean_text
from core.version import program_version
from tui.cli.asking import agreed, can_ask
from tui.cli.launch import home_of
from tui.cli.output import print_facts, print_progress, prints_facts
from tui.client import NodeClient
from tui.state.seat import stopped_words

START_S: Final = 60.0
LOOK_S: Final = 0.2


def add_options(command: argparse.ArgumentParser) -> None:
    can_ask(command)
    prints_facts(command, restart)


async def restart(args: argparse.Namespace) -> int:
    """Wait for answers to end, and start the node again with its options. Needs no event of another version."""
    async with NodeClient(home_of(args)) as client:
        before = await client.restart(RestartOrder())
        if before.led_by and not await agreed(args, stopped_words(before)):
            return 1
        if before.is_answering:
            print_progress("Waiting for the answers to end (Ctrl+C stops waiting).")
        await client.restart_when_quiet()
        after = await _started_again(client, before)
    facts = {"version": after.version, "was": before.version, "unloaded": before.model}
    print_facts(args, facts, [clean_text(line) for line in restart_lines(before, after)])
    return 0


def restart_lines(before: RestartReport, after: RestartReport) -> list[str]:
    lines = [f"The node was restarted and runs {after.version}."]
    if after.version != program_version():
        lines.append(f"This is {program_version()}: the node belongs to another installation of macluster.")
    if before.model and not before.led_by:
        lines.append(f"`macluster load {before.model}` loads the model again.")
    return lines


async def _started_again(client: NodeClient, before: RestartReport) -> RestartReport:
    """The report of the next node; raises NodeUnreachable with the reason if it did not start."""
    with suppress(TimeoutError):
        async with asyncio.timeout(START_S):
            while True:
                with suppress(NodeUnreachable):
                    if (now := await client.restart(RestartOrder())).started_at != before.started_at:
                        return now
                await asyncio.sleep(LOOK_S)
    return await client.restart(RestartOrder())


async def update(args: argparse.Namespace) -> None:
    """Print how this installation is updated; installs nothing."""
    try:
        commands = update_commands(distribution("macluster"), Path(sys.prefix), sys.executable)
    except PackageNotFoundError as error:
        raise UsageError("This macluster was not installed.", "Update its files where they came from.") from error
    lines = [f"This is macluster {program_version()}. To update it, type:"]
    lines += [f"  {command}" for command in (*commands, "macluster restart")]
    print_facts(args, {"version": program_version(), "commands": commands}, lines)
