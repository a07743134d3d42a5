"""`macluster speedtest`: measures the link between two Macs."""

from __future__ import annotations

import argparse
import asyncio

import msgspec

from core.requests.checks import SpeedRequest, SpeedResult
from tui.cli.launch import home_of
from tui.cli.output import print_facts
from tui.client import NodeClient
from tui.state.format import path_words


async def speedtest(args: argparse.Namespace) -> None:
    """Measure the link between two Macs; interrupting the command stops the test."""
    async with NodeClient(home_of(args)) as client:
        try:
            found = await client.test_speed(SpeedRequest(source=args.source, target=args.target))
        except asyncio.CancelledError:
            await client.stop_speed_test()
            raise
    facts = msgspec.to_builtins(found) | {"bytes_per_s": found.bytes_per_s}
    print_facts(args, facts, speed_lines(found))


def speed_lines(found: SpeedResult) -> list[str]:
    rtt, least, loaded = (f"{1e3 * s:.2f} ms" for s in (found.rtt_s, found.rtt_min_s, found.loaded_rtt_s))
    return [
        f"round trip {rtt} (fastest {least}, of {found.round_trips} empty messages)",
        f"{found.bytes_per_s / 1e6:.0f} MB/s encrypted ({found.frames} messages, round trip under load {loaded})",
        *([f"Networks between the two: {path_words(found.paths)}"] if found.paths else []),
        *(["An answer was running at the same time: test again when none is."] if found.answering else []),
    ]
