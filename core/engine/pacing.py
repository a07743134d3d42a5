"""Size of prompt chunks and how many are in flight, adapted to measurements of one chunk.

Window, by the bandwidth-delay product: a chunk is on the ring for `round_s`, and the busiest stage or wire takes one
every `busy_s`, so `round_s / busy_s` chunks keep it busy. The window grows when more than a quarter of a chunk is
missing, and shrinks when with a chunk less no more than a tenth would be.

Chunk: rows that decode wait for at most one chunk between two steps. So it is halved while it takes more than 0.25 s on
the slowest wire, and doubled, once per measurement, when twice as much would take less than 0.15 s.

Between the bound to grow and the bound to shrink nothing changes, so noise does not flap them. On loopback a wire takes
next to no time and `round_s` is the sum of the stages' compute times: both stay as planned.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from core.settings import FAR_BACK

MOST_WINDOW: Final = 8
LEAST_CHUNK: Final = 32
WIRE_S: Final = 0.25
FAST_WIRE_S: Final = 0.15
SLOW_S: Final = 30.0
MISSING: Final = 0.25
MISSING_LESS: Final = 0.1


class RingFigures(NamedTuple):
    """A chunk alone on the ring: seconds until its answer, of each stage's computing and each hop's sending."""

    tokens: int
    round_s: float
    compute_s: tuple[float, ...]
    send_s: tuple[float, ...]


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """Chunks of `chunk` tokens, `window` of them in flight; at most `most_chunk`, at least `least_window`."""

    most_chunk: int
    least_window: int
    chunk: int
    window: int

    def after(self, figures: RingFigures) -> Pace:
        return msgspec.structs.replace(self, chunk=self._chunk(figures), window=self._window(figures))

    def _chunk(self, figures: RingFigures) -> int:
        wire_s = max(figures.send_s, default=0.0) / figures.tokens
        if 2 * self.chunk * wire_s < FAST_WIRE_S:
            return min(2 * self.chunk, self.most_chunk)
        return _halved(self.chunk, lambda size: size * wire_s <= WIRE_S)

    def _window(self, figures: RingFigures) -> int:
        busy_s = max(*figures.compute_s, *figures.send_s, 0.0)
        needed = figures.round_s / busy_s if busy_s > 0 else self.window
        if self.window - 1 + MISSING_LESS < needed <= self.window + MISSING:
            return self.window
        return max(self.least_window, math.ceil(min(needed - MISSING, MOST_WINDOW)))


def chunk_behind(position: int, chunk: int) -> int:
    """The chunk size after `position` tokens: halved at long positions, for the watchdog of a GPU with a display."""
    return _halved(chunk, lambda size: size * position <= chunk * FAR_BACK)


def chunk_in_time(chunk: int, most: int, token_s: float) -> int:
    """The chunk size, halved while a chunk takes longer than `SLOW_S` at `token_s` seconds per token, as on a Mac that
    swaps; doubled, up to `most`, when twice as much would take less than half of that.
    """
    if 2 * chunk * token_s < SLOW_S / 2:
        return min(2 * chunk, most)
    return _halved(chunk, lambda size: size * token_s <= SLOW_S)


def _halved(chunk: int, is_small: Callable[[int], bool]) -> int:
    while chunk > LEAST_CHUNK and not is_small(chunk):
        chunk = max(chunk // 2, LEAST_CHUNK)
    return chunk


def planned_pace(chunk: int, window: int, stages: int) -> Pace:
    """The first pace: as planned, with a chunk for every stage at least."""
    least = max(window, stages)
    return Pace(most_chunk=chunk, least_window=least, chunk=chunk, window=least)
