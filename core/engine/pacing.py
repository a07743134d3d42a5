"""How large the chunks of a prompt are and how many of them are under way, from what one chunk shows of the ring.

Window, by the bandwidth-delay product: a chunk is on the ring for `round_s`, and the busiest stage or wire takes one
every `busy_s`, so `round_s / busy_s` chunks keep it busy. The window grows when more than a quarter of a chunk is
missing, and shrinks when with a chunk less no more than a tenth would be.

Chunk: rows that decode wait for one chunk at most between two steps. So it is halved while it takes more than 0.25 s on
the slowest wire, and doubled, once a look, when twice as much would take less than 0.15 s.

Between the bound to grow and the bound to shrink lies a gap in which nothing changes, so noise does not flap them. On
loopback a wire takes next to nothing and `round_s` is the sum of what the stages compute: both stay as planned.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import msgspec

from core.settings import FAR_BACK

MOST_WINDOW: Final = 8
LEAST_CHUNK: Final = 32
WIRE_S: Final = 0.25
FAST_WIRE_S: Final = 0.15
MISSING: Final = 0.25
MISSING_LESS: Final = 0.1


class RingFigures(NamedTuple):
    """What a chunk of `tokens` tokens showed of a ring that carried nothing else: the seconds until its answer came,
    the seconds that each stage computed, and those that each hop took to send it.
    """

    tokens: int
    round_s: float
    compute_s: tuple[float, ...]
    send_s: tuple[float, ...]


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """`chunk` tokens travel together, `window` chunks are under way. Never more than `most_chunk`, as planned, nor
    fewer than `least_window`.
    """

    most_chunk: int
    least_window: int
    chunk: int
    window: int

    def after(self, figures: RingFigures) -> Pace:
        """The pace from now on."""
        return msgspec.structs.replace(self, chunk=self._chunk(figures), window=self._window(figures))

    def _chunk(self, figures: RingFigures) -> int:
        wire_s = max(figures.send_s, default=0.0) / figures.tokens
        chunk = self.chunk
        if 2 * chunk * wire_s < FAST_WIRE_S:
            return min(2 * chunk, self.most_chunk)
        while chunk > LEAST_CHUNK and chunk * wire_s > WIRE_S:
            chunk = max(chunk // 2, LEAST_CHUNK)
        return chunk

    def _window(self, figures: RingFigures) -> int:
        busy_s = max(*figures.compute_s, *figures.send_s, 0.0)
        needed = figures.round_s / busy_s if busy_s > 0 else self.window
        if self.window - 1 + MISSING_LESS < needed <= self.window + MISSING:
            return self.window
        return max(self.least_window, math.ceil(min(needed - MISSING, MOST_WINDOW)))


def chunk_behind(position: int, chunk: int) -> int:
    """How many tokens of a prompt travel together behind `position` others: fewer where each of them looks back at so
    many that a GPU with a screen on would be stopped in mid-step.
    """
    return chunk if position <= FAR_BACK else min(chunk, max(LEAST_CHUNK, chunk * FAR_BACK // position))


def planned_pace(chunk: int, window: int, stages: int) -> Pace:
    """Where it begins: as the plan says, with a chunk for every stage at least."""
    least = max(window, stages)
    return Pace(most_chunk=chunk, least_window=least, chunk=chunk, window=least)
