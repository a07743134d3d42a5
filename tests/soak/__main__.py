"""`python -m tests.soak --hours 1`: clients ask the API of three simulated Macs for an hour, and figures must not
drift.

Some clients leave before their answer, Macs go and come back, and the model is loaded again. Memory, descriptors,
threads, disk and latency are measured. With `--clients 64 --rest 0 --leaving 0.33 --hours 0.03` it is a crowd of two
minutes instead. The status is 0 if every answer equals the one given alone, no question is lost except during a load,
the logs show no defect, and nothing drifts.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from tests.soak.report import markdown, write
from tests.soak.run import Load, soak


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument(
        "--rest", type=float, default=5.0, metavar="S", help="seconds between two questions of a client"
    )
    parser.add_argument("--leaving", type=float, default=0.2, help="how many of 1 leave before they are answered")
    parser.add_argument(
        "--apart", type=float, default=120.0, metavar="S", help="seconds between things done to the Macs"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path, metavar="FILE.md", help="write it there, and beside it as JSON")
    args = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has its background ignore Ctrl-C
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    load = Load(args.hours, args.clients, args.rest, args.leaving, args.apart, args.seed)
    try:
        told = asyncio.run(soak(load, lambda text: print(text, file=sys.stderr, flush=True)))
    except KeyboardInterrupt:
        sys.exit("Broken off; nothing is left.")
    print(markdown(told))
    if args.report:
        write(told, args.report)
    sys.exit(not told.holds)


if __name__ == "__main__":
    main()
