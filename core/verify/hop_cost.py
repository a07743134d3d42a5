"""`hop_cost FOLDER`: cost of a sealed hop of 8 KiB against plain TCP, and the length of a rank's short wait."""

from __future__ import annotations

import socket
from contextlib import suppress
from statistics import median
from time import perf_counter
from typing import Final

from core.link.tunnel import local_pair
from core.local.hop_rounds import MAX_CPU_RATIO, cpu_ratio, play_rounds
from core.verify.check import Outcome, passed
from core.verify.child import report
from core.worker.mlx_ring_sockets import TURN, TURN_US

ROUNDS: Final = 3
HOPS: Final = 200
WAITS: Final = 50


def check() -> Outcome:
    """Report figures; they never fail, since other programs run on this machine too."""
    rounds = play_rounds(ROUNDS, HOPS)
    round_trip = median(turns["sealed"].rtt_us for turns in rounds)
    return passed(
        f"sealed round trip {round_trip:.0f} µs; {cpu_ratio(rounds):.1f} × the CPU of plain TCP "
        f"(target: at most {MAX_CPU_RATIO:g}); "
        f"a rank's socket timeout of {TURN_US / 1e3:g} ms takes {turn_ms():.2f} ms"
    )


def turn_ms() -> float:
    """Median time that a rank's socket waits when nothing arrives, in ms."""
    waited = []
    ours, other = local_pair()
    with ours, other:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, TURN)
        for _ in range(WAITS):
            started = perf_counter()
            with suppress(BlockingIOError):
                ours.recv(1)
            waited.append(1e3 * (perf_counter() - started))
    return median(waited)


if __name__ == "__main__":
    report(check)
