"""Wall clocks that jump forwards and backwards in every Python process that starts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

JUMP_S: Final = 3 * 86_400
_SITE: Final = f"""
import random, time
_true = time.time
time.time = lambda: _true() + random.randint(-{JUMP_S}, {JUMP_S})
"""


@contextmanager
def jumping_clocks(folder: Path, more: str = "") -> Iterator[None]:
    """Processes started in the block, and their children, read a time that jumps by days; they run `more` first."""
    (folder / "sitecustomize.py").write_text(more + _SITE)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(folder)
    try:
        yield
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before
