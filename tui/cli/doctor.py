"""`macluster doctor`: finds what is wrong with this Mac, its node and its network."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator

from core.errors import NodeUnreachable
from core.mac.memory import default_budget, physical_bytes
from core.requests.checks import Finding
from core.settings import Home
from core.text import clean_text
from tui.cli.launch import home_of
from tui.cli.output import prints_facts, to_json
from tui.client import NodeClient
from tui.state.format import FINDING_MARKS


def add_options(doctor: argparse.ArgumentParser) -> None:
    where = "the address to check while no node runs (default: all interfaces)"
    doctor.add_argument("--host", default="0.0.0.0", help=where)
    prints_facts(doctor, check)


async def check(args: argparse.Namespace) -> int:
    """Print every finding at once, or all as JSON; status 1 if something is wrong."""
    found = []
    async for finding in _findings(home_of(args), args.host):
        found.append(finding)
        if not args.json:
            print("\n".join(finding_lines(finding)), flush=True)
    if args.json:
        print(to_json(found))
    return 1 if any(finding.state == "bad" for finding in found) else 0


async def _findings(home: Home, host: str) -> AsyncIterator[Finding]:
    try:
        async with NodeClient(home) as client:
            async for finding in client.check():
                yield finding
    except NodeUnreachable:
        # imports Bonjour and keys, which no other command needs
        from core.node.peers.node_check import findings_without_node

        async for finding in findings_without_node(home, host, default_budget(physical_bytes())):
            yield finding


def finding_lines(finding: Finding) -> list[str]:
    mark = FINDING_MARKS[finding.state]
    lines = [f"{mark.glyph} {mark.word:<9} {finding.name}: {finding.what}"]
    return [clean_text(line) for line in [*lines, *([f"            → {finding.fix}"] if finding.fix else [])]]
