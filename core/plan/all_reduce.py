"""Steps of an all-reduce between ranks; in each step every rank sends one message to the next one and receives one."""

from __future__ import annotations

from typing import Final, NamedTuple

GATHERED_BYTES: Final = 1 << 16


class ReduceSteps(NamedTuple):
    """Steps one after the other, and bytes per step."""

    number: int
    bytes: float


def is_gathered(size: int, ranks: int) -> bool:
    """Whether each rank sums all `size` bytes of the others itself: half a ring's steps, good for small messages."""
    return ranks == 2 or size <= GATHERED_BYTES


def ring_steps(size: int, ranks: int) -> ReduceSteps:
    """A ring: partial sums go round, then the results go round again."""
    return ReduceSteps(2 * (ranks - 1), size / ranks)


def sealed_steps(size: int, ranks: int) -> ReduceSteps:
    return ReduceSteps(ranks - 1, size) if is_gathered(size, ranks) else ring_steps(size, ranks)
