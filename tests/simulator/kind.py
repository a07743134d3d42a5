"""What a schedule is about, besides what fails in it: said by its seed alone, and not by its dice."""

from __future__ import annotations

from random import Random
from typing import Final, NamedTuple

from core.events import Topology

TOPOLOGIES: Final[dict[int, Topology]] = {1: "forward", 2: "reverse", 3: "forward", 6: "reverse"}


class Kind(NamedTuple):
    """`heads`: so many Macs lead a plan each, where there are as many. `is_fickle`: whoever is told that a Mac is lost
    would rather wait, and then would not. `stutters`: workers say some words twice. `draws`: tokens are drawn, with a
    seed that the person gave or did not. `topology`: of the plans. `saves`: conversations are saved and loaded.
    `mirrors`: the head keeps what all hold, and answers are longer; `states`: some layers
    keep only those. `whims`: dice for what others do not have.
    """

    seed: int
    whims: Random
    heads: int = 1
    is_fickle: bool = False
    stutters: bool = False
    draws: bool = False
    topology: Topology | None = None
    saves: bool = False
    mirrors: bool = False
    states: bool = False


def kind_of(seed: int) -> Kind:
    """What the schedule of that seed is about."""
    return Kind(
        seed,
        Random(-1 - seed),
        heads=1 if seed % 7 else 2,
        is_fickle=seed % 10 == 2,
        stutters=seed % 5 == 4,
        draws=seed % 3 == 1,
        topology=TOPOLOGIES.get(seed % 7),
        saves=seed % 5 == 0,
        mirrors=seed % 4 == 3,
        states=seed % 8 == 7,
    )
