"""How ranks add up: in which steps, of which each sends one message to the next rank and waits for one from the rank
before.
"""

from __future__ import annotations

from typing import Final, NamedTuple

GATHERED_BYTES: Final = 1 << 16


class ReduceSteps(NamedTuple):
    """`number` steps, one behind the other, each of so many bytes."""

    number: int
    bytes: float


def is_gathered(size: int, ranks: int) -> bool:
    """Whether each rank gets `size` bytes from every other one and adds all up by itself, in half the steps of a ring
    of sums. Between two ranks no more travels then; among more it is worth it where the steps cost, not the bytes.
    """
    return ranks == 2 or size <= GATHERED_BYTES


def ring_steps(size: int, ranks: int) -> ReduceSteps:
    """Pieces that are summed on their way round, and go round once more."""
    return ReduceSteps(2 * (ranks - 1), size / ranks)


def sealed_steps(size: int, ranks: int) -> ReduceSteps:
    """Of the sealed group."""
    return ReduceSteps(ranks - 1, size) if is_gathered(size, ranks) else ring_steps(size, ranks)
