"""How long tests search for rare faults: briefly in `make test`, SEARCH times as long in `make search`."""

from __future__ import annotations

import os
from typing import Final

SEARCH: Final = int(os.environ.get("SEARCH", "1"))


def seeds(count: int, each: int) -> list[range]:
    """The first `count` seeds, or SEARCH times as many, as parameters of a test."""
    return [range(first, first + each) for first in range(0, count * SEARCH, each)]
