"""`python -m tests.fuzz --seconds 60 [--only NAME] [--seed N]`: every target in its own process, in parallel.

An input that breaks one is kept in `fuzz-failures/`; `python -m tests.fuzz --replay FILE` plays it again.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from pathlib import Path

from tests.fuzz.runner import NAMES, replay, run


def main() -> None:
    """Run all targets, or the chosen one."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each target is fuzzed")
    parser.add_argument("--only", choices=NAMES)
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time; it is printed")
    parser.add_argument("--replay", type=Path, metavar="FILE")
    args = parser.parse_args()
    if args.replay:
        replay(args.replay)
        return
    seed = int.from_bytes(os.urandom(4)) if args.seed is None else args.seed
    os.environ["MLX_DISABLE_COMPILE"] = "1"  # as in the tests: a kernel takes the system's compiler seconds
    names = [args.only] if args.only else list(NAMES)
    print(f"Fuzzing {', '.join(names)} for {args.seconds:.0f} s with seed {seed}", flush=True)
    context = multiprocessing.get_context("spawn")
    runs = [context.Process(target=run, args=(name, args.seconds, seed), name=name) for name in names]
    for one in runs:
        one.start()
    for one in runs:
        one.join()
    sys.exit(any(one.exitcode for one in runs))


if __name__ == "__main__":
    main()
