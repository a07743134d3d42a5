"""How far a Mac is trusted (security.md §2.6), and what a group of Macs is worth: its weakest member."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from core.events import Level

LEVELS: Final[tuple[Level, ...]] = ("blocked", "unpaired", "seen", "paired", "hardware-bound")
_RANKS: Final[dict[Level, int]] = {level: rank for rank, level in enumerate(LEVELS)}


def rank(level: Level) -> int:
    """0 (blocked) to 4 (hardware-bound); also the number that a roster carries."""
    return _RANKS[level]


def weakest(levels: Iterable[Level]) -> Level:
    """The min law: a group is trusted as far as its weakest member. Nobody at all is "unpaired"."""
    return min(levels, key=rank, default="unpaired")


def carries_prompts(level: Level) -> bool:
    """Whether prompts and activations may go to a Mac, or a cluster, of this level."""
    return rank(level) >= rank("paired")
