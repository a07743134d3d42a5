"""`python -m tests.simulator SEED`: what happens in one schedule."""

from __future__ import annotations

import sys

from tests.simulator.schedule import Schedule

if __name__ == "__main__":
    Schedule(int(sys.argv[1]), lambda line: print(line)).run()
