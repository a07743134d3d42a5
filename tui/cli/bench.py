"""`macluster bench`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
from typing import Final

NAMES: Final = (
    *("batch", "beside", "comms", "compare", "copy", "forecast", "hop", "loop", "pair", "plain", "prefill", "reuse"),
    *("scenarios", "schema", "solo", "speculate", "tensor", "topology", "trace", "tui"),
)


async def bench(args: argparse.Namespace) -> int:
    """Run a bench in a process of its own, since it imports mlx."""
    command = [sys.executable, "-m", _bench_module(args.name), *(["--json"] if args.json else []), *args.options]
    process = await asyncio.create_subprocess_exec(*command, env={**os.environ, "PYTHONSAFEPATH": "1"})
    try:
        return await process.wait()
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()  # it takes its workers and its folder with it
        await process.wait()
        raise


def _bench_module(name: str) -> str:
    """Those that start the demo's nodes stand beside it."""
    own = {
        "copy": "tui.cli.copy_bench",
        "forecast": "tui.cli.forecast_bench",
        "pair": "tui.cli.pair_bench",
        "scenarios": "tui.cli.scenarios",
        "tui": "tui.bench",
    }
    return own.get(name, f"core.bench.{name}")
