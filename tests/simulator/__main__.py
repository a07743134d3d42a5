"""`python -m tests.simulator SEED`: the events of one schedule, with a mistake built in if one is named."""

from __future__ import annotations

import argparse
from contextlib import nullcontext

from tests.simulator.mutants import MUTANTS, mutated
from tests.simulator.schedule import Schedule

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.simulator")
    parser.add_argument("seed", type=int)
    parser.add_argument("--mistake", choices=MUTANTS)
    args = parser.parse_args()
    with mutated(args.mistake) if args.mistake else nullcontext():
        Schedule(args.seed, lambda line: print(line)).run()
