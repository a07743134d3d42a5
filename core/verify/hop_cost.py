"""`hop_cost FOLDER`: what a sealed hop of 8 KiB costs on this machine, beside plain TCP."""

from __future__ import annotations

from typing import Final

from core.bench.hop import REACH, measure
from core.verify.check import Outcome, passed
from core.verify.child import tell

ROUNDS: Final = 3
HOPS: Final = 200


def check() -> Outcome:
    """A figure, which never fails: other programs run on this machine, too."""
    found = measure(ROUNDS, HOPS)
    ratio = found.ratios["sealed_over_raw_cpu"]
    trip = found.rtt_us_p50["sealed"]
    return passed(
        f"{trip:.0f} µs there and back, sealed; {ratio:.1f} × the CPU of plain TCP (at most {REACH:g} wanted)"
    )


if __name__ == "__main__":
    tell(check)
