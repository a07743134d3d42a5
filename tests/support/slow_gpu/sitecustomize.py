"""Python reads this at start: a worker takes 20 ms longer for each step, so that answers last and leave the CPU alone.

A step of a tiny model takes a few milliseconds. An answer that a test only needs to run would keep all cores busy.
"""

import sys
from time import sleep

if "core.worker" in sys.orig_argv:
    import mlx.core as mx

    _compute = mx.eval

    def _eval(*arrays: object) -> None:
        sleep(0.02)
        _compute(*arrays)

    mx.eval = _eval
