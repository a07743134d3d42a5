"""`macluster models trim`: frees disk space that no plan needs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from core.models.files.layers_on_disk import layers_text, size_text
from core.requests.disks import Trimmable, TrimRequest
from core.text import clean_text
from tui.cli.asking import agreed, can_ask
from tui.cli.launch import home_of
from tui.cli.output import print_facts, prints_facts
from tui.client import NodeClient

SNAPSHOTS: Final = " Where Time Machine is on, its local snapshots hold the space for about a day."


def add_trim(listed: argparse.ArgumentParser) -> None:
    sub = listed.add_subparsers(dest="action", metavar="trim")
    command = sub.add_parser("trim", help="delete downloaded layers that no plan needs; asks first")
    command.add_argument("model", metavar="MODEL", nargs="?", default="", help="only of this model (default: of all)")
    can_ask(command)
    prints_facts(command, trim)


async def trim(args: argparse.Namespace) -> int:
    """Free what no plan needs; with --json and without --yes, only list it."""
    async with NodeClient(home_of(args)) as client:
        found = await client.trim(TrimRequest(model=args.model))
        nbytes = sum(each.nbytes for each in found)
        lines = trim_lines(found)
        is_done = False
        if found and (args.yes or not args.json):
            print("\n".join(lines), file=sys.stderr)
            if is_done := await agreed(args, f"This frees {size_text(nbytes)} on this Mac's disk."):
                nbytes = sum(each.nbytes for each in await client.trim(TrimRequest(model=args.model, go=True)))
    done = [f"Freed {size_text(nbytes)}.{SNAPSHOTS * (sys.platform == 'darwin')}"] if is_done else []
    facts = {"freed_bytes": nbytes if is_done else 0, "found": found}
    print_facts(args, facts, done if found else ["There is nothing to delete: plans need everything here."])
    return 0 if is_done or not found or args.json else 1


def trim_lines(found: Sequence[Trimmable]) -> list[str]:
    return [clean_text(f"{each.name}: {size_text(each.nbytes)}, {_why(each)}") for each in found]


def _why(each: Trimmable) -> str:
    if not each.layers:
        return "an unfinished download" if not each.kept else "data around its layers"
    alone = f"; {layers_text(each.only_here)} would be on no other linked Mac" if each.only_here else ""
    if not each.kept:
        return f"everything here ({layers_text(each.layers)}); no plan has used it{alone}"
    return f"{layers_text(each.layers)}; its last plan needs {layers_text(each.kept)} here{alone}"
