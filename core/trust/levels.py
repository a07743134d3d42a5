"""Trust levels (security.md §2.6); a group of Macs has the level of its weakest member.

Number 4 is reserved for a hardware-bound key, which no Mac can have yet: macOS denies the Secure Enclave to an unsigned
Python. A roster that carries it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from core.events import Level

LEVELS: Final[tuple[Level, ...]] = ("blocked", "unpaired", "seen", "paired")


def rank(level: Level) -> int:
    """0 (blocked) to 3 (paired), as in a roster."""
    return LEVELS.index(level)


def level_of(
    *,
    listed: Level | None,
    revoked: bool = False,
    forked: bool = False,
    wrong_key: bool = False,
    other_model: bool = False,
    seen: bool = False,
) -> Level:
    """Trust level of a Mac.

    `listed`: its level in the roster, None for a stranger. `forked`: the roster has an undecided fork, so its entries
    may be false. `wrong_key`: another key answered at its address, or a certificate with CA:TRUE. `other_model`: its
    files differ from the plan's. `seen`: a stranger whose key was met before (`core.trust.seen_macs`), only a hint.
    """
    if revoked or wrong_key or other_model or (forked and listed is not None):
        return "blocked"
    if listed is not None:
        return listed
    return "seen" if seen else "unpaired"


def weakest(levels: Iterable[Level]) -> Level:
    """Level of the weakest member; "unpaired" for an empty group."""
    return min(levels, key=rank, default="unpaired")


def carries_prompts(level: Level) -> bool:
    """Whether prompts and activations may go to a Mac or cluster of this level."""
    return rank(level) >= rank("paired")
