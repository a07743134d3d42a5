"""Avoids long pauses of the garbage collector."""

from __future__ import annotations

import gc


def avoid_long_collections() -> None:
    """Avoid long pauses: freeze what exists, and collect new objects often (3,000 objects take 5 ms)."""
    gc.enable()  # starting is faster without it
    gc.freeze()
    gc.set_threshold(3_000, 5, 200)
