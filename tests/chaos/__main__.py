"""`python -m tests.chaos`: faults at random points of real answers over real nodes, and a report.

A thousand kills take an hour: `for seed in 100 200 300 400; do python -m tests.chaos --round kills --seed $seed; done`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Final

from tests.chaos.faults import FAULTS
from tests.chaos.report import write
from tests.chaos.round import Wanted, run_round

REPORT: Final = Path(__file__).parent / "REPORT.md"


def main() -> None:
    """Run a round; the status is 0 if every try went well."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--round", choices=("full", "short", "kills"), default="full", help="kills: 310")
    parser.add_argument("--only", choices=[fault.name for fault in FAULTS], action="append", help="may be given again")
    parser.add_argument("--tries", type=int, help="so many of each fault of the round")
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time; it is printed")
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="FILE.md; default: REPORT.md here, of a whole round"
    )
    args = parser.parse_args()
    seed = int.from_bytes(os.urandom(3)) if args.seed is None else args.seed
    wanted = Wanted(args.round, tuple(args.only or ()), args.tries, seed)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has its background ignore Ctrl-C
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        told = asyncio.run(run_round(wanted, lambda text: print(text, flush=True)))
    except KeyboardInterrupt:
        sys.exit("Broken off; nothing is left.")
    if report := args.report or (REPORT if wanted == Wanted(seed=seed) else None):
        write(told, report)
    print(f"{len(told.outcomes)} tries in {told.seconds:.0f} s, {len(told.failed)} failed.")
    for one in told.failed:
        print(f"{one.line}\n  {one.command}\n{one.evidence}", file=sys.stderr)
    sys.exit(bool(told.failed))


if __name__ == "__main__":
    main()
