"""The thirteen phases of a step, timed by the one thread of a stage.

Every moment belongs to one phase, with the little between two of them, so the phases add up to the step. Nothing is
evaluated or awaited for the measurement.
"""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import Any, Final, NamedTuple

from core.requests.trace import MOST_LAPS, MOST_STEPS, PHASES, Phase, PhaseTurn, TurnKind

_NUMBERS: Final = {phase: number for number, phase in enumerate(PHASES)}


class Turn(NamedTuple):
    """The work of a stage: a step of the ring, and its handle."""

    step: int
    kind: TurnKind
    handle: int


class _Noted(NamedTuple):
    """A turn in the form that is fastest to record: phase and end of each lap, in one flat list."""

    work: Turn
    began: float
    laps: tuple[Any, ...]


class PhaseClock:
    """Records phases of a traced stage: names and times, from which `take` builds readable turns."""

    __slots__ = ("_began", "_laps", "_turns", "work")

    def __init__(self) -> None:
        self._turns: deque[_Noted] = deque(maxlen=MOST_STEPS)
        self._laps: list[Any] = []
        self.work: Turn | None = None
        self.rest()

    def take(self, most: int) -> list[PhaseTurn]:
        """The oldest turns not taken yet; after very many, only the newest are kept."""
        return [_turn(self._turns.popleft()) for _ in range(min(most, len(self._turns)))]

    def rest(self) -> None:
        self._began = monotonic()
        self._laps.clear()
        self.work = None

    def lap(self, phase: Phase) -> None:
        self._laps += phase, monotonic()

    def arrived(self, wire_s: float, open_s: float) -> None:
        """A frame arrived: attribute part of the time since the last lap to its bytes, and part to opening it."""
        now = monotonic()
        here = now - open_s
        self._laps += "recv_wait", here - wire_s, "to_bytes", here, "aead_open", now

    def sent(self, seal_s: float, phase: Phase) -> None:
        """A frame was sent, as `phase`; sealing took that part of the time since the last lap."""
        laps = self._laps
        sealed = (laps[-1] if laps else self._began) + seal_s
        laps += "aead_seal", sealed, phase, monotonic()

    def works(self, step: int, kind: TurnKind, handle: int = 0) -> None:
        work = self.work
        if work is None or work.step != step or work.kind != kind or work.handle != handle:
            self.end()
            self.work = Turn(step, kind, handle)

    def back(self, work: Turn | None) -> None:
        if work:
            self.works(*work)

    def end(self) -> None:
        """End the turn, if any; the time since the last lap belongs to its last phase."""
        if self.work and self._laps:
            laps = self._laps
            laps[-1] = now = monotonic()
            self._turns.append(_Noted(self.work, self._began, tuple(laps)))
            self._began = now
            laps.clear()
        self.work = None


def _turn(noted: _Noted) -> PhaseTurn:
    """The laps of a turn; very many, as after a long wait, are added up by phase."""
    ends = noted.laps[1::2]
    numbers = [_NUMBERS[phase] for phase in noted.laps[::2]]
    laps = [(number, end - before) for number, before, end in zip(numbers, (noted.began, *ends), ends, strict=False)]
    if len(laps) > MOST_LAPS:
        together: dict[int, float] = {}
        for number, seconds in laps:
            together[number] = together.get(number, 0.0) + seconds
        laps = list(together.items())
    told = tuple((number, max(0.0, seconds)) for number, seconds in laps)
    step, kind, handle = noted.work
    return PhaseTurn(step, kind, noted.began, ends[-1] - noted.began, told, handle)
