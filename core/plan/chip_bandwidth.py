"""Memory bandwidth of Apple's chips by name, for estimates before a Mac was measured."""

from __future__ import annotations

import re
from typing import Final

# GB/s by Apple's data sheets; the lower figure if a name was sold with two
_GB_PER_S: Final = {
    "M1": 68, "M1 Pro": 200, "M1 Max": 400, "M1 Ultra": 800,
    "M2": 100, "M2 Pro": 200, "M2 Max": 400, "M2 Ultra": 800,
    "M3": 100, "M3 Pro": 150, "M3 Max": 300, "M3 Ultra": 819,
    "M4": 120, "M4 Pro": 273, "M4 Max": 410,
    "M5": 153, "M5 Pro": 307, "M5 Max": 460,
}  # fmt: skip
_NAME: Final = re.compile(r"(?:Apple )?((M\d+)(?: (?:Pro|Max|Ultra))?)\b")


def memory_bytes_per_s(chip: str) -> float | None:
    """Memory bandwidth of a chip such as "M2 Ultra", for an unknown variant its generation's base chip; else None."""
    name = _NAME.match(chip)
    known = _GB_PER_S.get(name[1], _GB_PER_S.get(name[2])) if name else None
    return None if known is None else known * 1e9
