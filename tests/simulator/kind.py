"""What a schedule is about, besides what fails in it: said by its seed alone, and not by its dice."""

from __future__ import annotations

from random import Random
from typing import NamedTuple


class Kind(NamedTuple):
    """`heads`: so many Macs lead a plan each, where there are as many. `is_fickle`: whoever is told that a Mac is lost
    would rather wait, and then would not. `stutters`: workers say some words twice. `whims`: dice for what others do
    not have.
    """

    seed: int
    whims: Random
    heads: int = 1
    is_fickle: bool = False
    stutters: bool = False


def kind_of(seed: int) -> Kind:
    """What the schedule of that seed is about."""
    return Kind(
        seed,
        Random(-1 - seed),
        heads=2 if seed % 7 in (0, 3) else 1,
        is_fickle=seed % 5 == 2,
        stutters=seed % 5 == 4,
    )
