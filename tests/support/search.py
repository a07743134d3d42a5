"""How long tests search for rare faults: briefly in `make test`, SEARCH times as long in `make search`."""

from __future__ import annotations

import os
from typing import Any, Final

import pytest

SEARCH: Final = int(os.environ.get("SEARCH", "1"))


def seeds(count: int, each: int) -> list[Any]:
    """The first `count` seeds, or SEARCH times as many, as parameters of a test: `make test` takes `each` of them."""
    parts = [range(first, first + each) for first in range(0, count * SEARCH, each)]
    return [pytest.param(part, marks=[pytest.mark.nightly] * bool(part.start), id=str(part)) for part in parts]
