"""No pauses of the collector while somebody reads."""

from __future__ import annotations

import gc


def tune_gc() -> None:
    """What exists now lives as long as the app; collections over it would cause pauses. Those over what is new are made
    often instead of long: 3,000 objects take 5 milliseconds.
    """
    gc.enable()  # a start is quicker without it
    gc.freeze()
    gc.set_threshold(3_000, 5, 200)
