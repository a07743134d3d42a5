"""Settings of a schedule besides its faults; they depend on its seed alone, not on its dice."""

from __future__ import annotations

from random import Random
from typing import Final, NamedTuple

from core.events import Topology

TOPOLOGIES: Final[dict[int, Topology]] = {1: "forward", 2: "reverse", 3: "forward", 6: "reverse"}


class Kind(NamedTuple):
    """Settings of one schedule.

    `heads`: number of Macs that lead a plan each, if there are that many. `is_fickle`: a person asked about a lost Mac
    chooses to wait, then changes their mind. `stutters`: workers send some messages twice. `draws`: answers are
    sampled, with a given seed or without. `topology`: of the plans. `saves`: conversations are saved and loaded.
    `mirrors`: the head mirrors caches, and answers are longer; `states`: some layers keep only states. `forgets`: some
    orders and reports of plans are lost. `whims`: dice for these settings.
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
    forgets: bool = False


def kind_of(seed: int) -> Kind:
    """Settings of the schedule of that seed."""
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
        forgets=seed % 6 == 5,
    )
