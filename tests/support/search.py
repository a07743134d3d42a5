"""How far tests look for what is rare: `make test` looks a little, `make search` SEARCH times as far."""

from __future__ import annotations

import os
from typing import Final

SEARCH: Final = int(os.environ.get("SEARCH", "1"))


def seeds(count: int, each: int) -> list[range]:
    """The first `count` seeds, or SEARCH times as many, `each` a test."""
    return [range(first, first + each) for first in range(0, count * SEARCH, each)]
