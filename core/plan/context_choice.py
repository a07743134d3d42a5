"""Choose the context of a plan: as long as memory allows without another Mac."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import cache
from typing import Final, NamedTuple

from core.settings import DEFAULT_CONTEXT

FOR_AGENTS: Final = 65_536  # coding agents need this much, so a context up to here may fill all Macs
MARGIN: Final = 0.1  # share of every Mac's budget that a longer context leaves free

# the fewest Macs that hold a context with this share of their budgets free; 0 if it doesn't fit
MacsFor = Callable[[int, float], int]


class ContextChoice(NamedTuple):
    """A context in tokens, and a sentence on why it is not longer."""

    tokens: int
    why: str


def choose_context(longest: int, macs_for: MacsFor) -> ContextChoice:
    """The largest power of two up to `longest`, the model's limit, that leaves `MARGIN` free and needs no more Macs
    than `DEFAULT_CONTEXT` does; at least `FOR_AGENTS` where that fits.
    """
    steps = [DEFAULT_CONTEXT << n for n in range(longest.bit_length()) if DEFAULT_CONTEXT << n <= longest] or [longest]
    macs_for = cache(macs_for)
    fewest = macs_for(steps[0], 0)

    def is_long(tokens: int) -> bool:
        fits_all = tokens <= FOR_AGENTS and macs_for(tokens, 0)
        return not (fits_all or 0 < macs_for(tokens, MARGIN) <= fewest)

    tokens = steps[max(0, bisect_left(steps, True, key=is_long) - 1)]
    return ContextChoice(tokens, f"Context: {tokens:,} tokens, {_limit(tokens, steps[-1], fewest, macs_for)}.")


def _limit(tokens: int, last: int, fewest: int, macs_for: MacsFor) -> str:
    if tokens == last:
        return "as much as the model takes"
    match macs_for(2 * tokens, 0):
        case 0:
            return "since twice as much does not fit"
        case macs if macs > fewest:
            return "since twice as much needs another Mac"
        case _:
            return f"since twice as much leaves less than {MARGIN:.0%} of the memory free"
