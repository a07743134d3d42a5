"""`python -m tests.soak --hours 1`: for an hour clients ask the API of three simulated Macs, some leave before they are
answered, Macs go and come back, the model is loaded anew; whether memory, descriptors, threads, disk or latency drift.

With `--clients 64 --rest 0 --leaving 0.33 --hours 0.03` it is a crowd of two minutes instead. It ends well (status 0)
where every answer that came is what comes where it is asked for alone, none is lost while a model is loaded, nothing
failed by a defect, and nothing drifts.
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
