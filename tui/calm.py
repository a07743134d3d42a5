"""No pauses of the collector while somebody reads."""

from __future__ import annotations

import gc


def calm_collector() -> None:
    """What exists now lives as long as the app; full collections over it would cause pauses."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
