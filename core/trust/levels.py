"""How far a Mac is trusted (security.md §2.6), and what a group of Macs is worth: its weakest member.

The number 4 is reserved for a key that the Mac's hardware holds. No Mac can reach it: macOS lets no Python
that is not signed use the Secure Enclave. A roster that carries it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from core.events import Level

LEVELS: Final[tuple[Level, ...]] = ("blocked", "unpaired", "seen", "paired")
_RANKS: Final[dict[Level, int]] = {level: rank for rank, level in enumerate(LEVELS)}


def rank(level: Level) -> int:
    """0 (blocked) to 3 (paired); also the number that a roster carries."""
    return _RANKS[level]


def level_of(
    *,
    listed: Level | None,
    revoked: bool = False,
    forked: bool = False,
    wrong_key: bool = False,
    other_model: bool = False,
    seen: bool = False,
) -> Level:
    """The level of one Mac, from facts.

    `listed`: what the roster says of it, None for a stranger. `revoked`: its key was put out. `forked`: the roster has
    a fork that nobody decided, so what it says of anyone may be false. `wrong_key`: where it was looked for, another
    key answered, or a certificate that says CA:TRUE. `other_model`: its files are not those of the plan. `seen`: a
    stranger whose key was met before (`core.trust.seen_macs`); nobody confirmed it, so that is no more than a hint.
    """
    if revoked or wrong_key or other_model or (forked and listed is not None):
        return "blocked"
    if listed is not None:
        return listed
    return "seen" if seen else "unpaired"


def weakest(levels: Iterable[Level]) -> Level:
    """The min law: a group is trusted as far as its weakest member. Nobody at all is "unpaired"."""
    return min(levels, key=rank, default="unpaired")


def carries_prompts(level: Level) -> bool:
    """Whether prompts and activations may go to a Mac, or a cluster, of this level."""
    return rank(level) >= rank("paired")
