"""The thirteen phases of a step: the one thread of a stage says whenever it has come to the end of one.

Every moment belongs to one phase, with the little that goes on between two of them; so what a step took is what its
phases took. Nothing is evaluated, or waited for, because it is measured.
"""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import Final, NamedTuple

from core.requests.trace import MOST_LAPS, MOST_STEPS, PHASES, Phase, PhaseTurn, TurnKind

_NUMBERS: Final = {phase: number for number, phase in enumerate(PHASES)}


class Turn(NamedTuple):
    """What a stage is at: a step of the ring, and whose."""

    step: int
    kind: TurnKind
    handle: int


class _Noted(NamedTuple):
    """A turn as it was noted, in haste."""

    work: Turn
    began: float
    ended: float
    laps: list[tuple[int, float]]


class PhaseClock:
    """Notes nothing until it is switched on."""

    def __init__(self) -> None:
        self._is_on = False
        self._turns: deque[_Noted] = deque(maxlen=MOST_STEPS)
        self._laps: list[tuple[int, float]] = []
        self._work: Turn | None = None
        self._began = self._at = 0.0

    def switch(self, *, on: bool) -> None:
        """From now on, or no longer."""
        if on and not self._is_on:
            self._turns.clear()
            self.rest()
        self._is_on = on

    def take(self, most: int) -> list[PhaseTurn]:
        """The oldest turns that were not taken, the newest only where there were very many."""
        return [_turn(self._turns.popleft()) for _ in range(min(most, len(self._turns)))]

    def rest(self) -> None:
        """There was no work: what went by belongs to no step."""
        self._began = self._at = monotonic()
        self._laps.clear()
        self._work = None

    def lap(self, phase: Phase) -> None:
        """What went by since the last lap was this phase."""
        if self._is_on:
            now = monotonic()
            self._laps.append((_NUMBERS[phase], now - self._at))
            self._at = now

    def arrived(self, wire_s: float, open_s: float) -> None:
        """A frame is here: that much of the time since the last lap went by with its bytes, and with opening it."""
        if self._is_on:
            now = monotonic()
            waited_s = now - self._at - wire_s - open_s
            self._note(now, ("recv_wait", waited_s), ("to_bytes", wire_s), ("aead_open", open_s))

    def sent(self, seal_s: float, phase: Phase) -> None:
        """A frame was sent, which is `phase`; sealing it took that much of the time since the last lap."""
        if self._is_on:
            now = monotonic()
            self._note(now, ("aead_seal", seal_s), (phase, now - self._at - seal_s))

    def works(self, step: int, kind: TurnKind, handle: int = 0) -> None:
        """The stage is at this work now, and was since the turn before ended."""
        if self._is_on and self._work != (turn := Turn(step, kind, handle)):
            self.end()
            self._work = turn

    @property
    def work(self) -> Turn | None:
        """What the stage is at."""
        return self._work

    def back(self, work: Turn | None) -> None:
        """The stage is at what it was at before."""
        if work:
            self.works(*work)

    def end(self) -> None:
        """The turn is over, if it was about anything; what went by since the last lap was still its last phase."""
        if self._is_on and self._work and self._laps:
            self.lap(PHASES[self._laps[-1][0]])
            self._turns.append(_Noted(self._work, self._began, self._at, self._laps))
            self._began, self._laps = self._at, []
        self._work = None

    def _note(self, now: float, *laps: tuple[Phase, float]) -> None:
        self._laps += [(_NUMBERS[phase], seconds) for phase, seconds in laps]
        self._at = now


def _turn(noted: _Noted) -> PhaseTurn:
    """Where it has very many laps, as behind a long wait, with those of each phase together."""
    laps = noted.laps
    if len(laps) > MOST_LAPS:
        together: dict[int, float] = {}
        for number, seconds in laps:
            together[number] = together.get(number, 0.0) + seconds
        laps = list(together.items())
    told = tuple((number, max(0.0, seconds)) for number, seconds in laps)
    step, kind, handle = noted.work
    return PhaseTurn(step, kind, noted.began, noted.ended - noted.began, told, handle)
