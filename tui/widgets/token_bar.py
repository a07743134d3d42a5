"""The bar of pane 2, with a moving token while an answer is written."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from textual.content import Content

from core.events import Plan
from tui.state.hops import Ring, ring_of
from tui.state.plan_words import is_of_ranks
from tui.state.state import UiState
from tui.widgets.layer_bar import layer_bar, marked, part_starts
from tui.widgets.text_view import TextView

# a short line, redrawn at most five times a second to stay cheap
STEP_S = 0.2
# shortest round that the eye can follow
ROUND_S = 2.0
_FACTORS = tuple(base * 10**power for power in range(6) for base in (1, 2, 5))


class TokenPosition(NamedTuple):
    """Where the token is."""

    owner: int  # number of the Mac, in layer order
    is_hop: bool  # on the hop from it to the next one; from the last one to the first
    part: float  # elapsed part of its time there


class RingTrip(NamedTuple):
    """One round of a token."""

    legs: tuple[tuple[float, float], ...]  # seconds of (computing, hop) per Mac, in layer order
    slowed: int  # how many times slower it is shown

    @property
    def round_s(self) -> float:
        return _trip_s(self.legs) * self.slowed


class TokenBar(TextView):
    """Redraws only while a token travels; stands still if animations are off."""

    def __init__(self) -> None:
        super().__init__(id="token-bar")
        self._layers: list[int] = []
        self._trip: RingTrip | None = None  # of the shown round
        self._next: RingTrip | None = None
        self._began = 0.0

    def on_mount(self) -> None:
        self._clock = self.set_interval(STEP_S, self._step, pause=True)

    def show(self, state: UiState) -> None:
        plan = state.snapshot.used_plan
        self._layers = [owner.stop - owner.start for owner in plan.owners] if plan else []
        self.display = bool(plan)
        runs = state.snapshot.running and state.snapshot.plan_status == "ready"
        moves = runs and self.app.animation_level != "none"
        self._next = ring_trip_of(plan, ring_of(state)) if plan and moves else None
        if self._next and not self._trip:
            self._trip, self._began = self._next, time.monotonic()
            self._clock.resume()
        elif not self._next:
            self._rest()
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    @property
    def caption(self) -> str:
        """How to read the animation; "" if nothing travels."""
        if self._trip is None:
            return ""
        return "▸ one token, real time" if self._trip.slowed == 1 else f"▸ one token, {self._trip.slowed}× slow motion"

    def _step(self) -> None:
        if self.size.width <= 0 or not self.screen.is_current:
            self._rest()
        elif self._trip and time.monotonic() - self._began >= self._trip.round_s:
            self._trip, self._began = self._next, time.monotonic()
        self._draw()

    def _rest(self) -> None:
        self._trip = None
        self._clock.pause()

    def _draw(self) -> None:
        width = self.size.width
        if width <= 0 or not self._layers:
            return
        at = position_of(self._trip, time.monotonic() - self._began) if self._trip else None
        self.draw(token_bar_content(self._layers, width, at))


def token_bar_content(layers: Sequence[int], width: int, at: TokenPosition | None) -> Content:
    """The bar of `width` cells with the token on it. The last cell is the way back to the first Mac."""
    if len(layers) == 1:
        return layer_bar(layers, width)
    line = layer_bar(layers, width - 1) + " "
    if at is None:
        return line
    starts = part_starts(layers, width - 1)
    if not at.is_hop:
        cells = starts[at.owner + 1] - 1 - starts[at.owner]
        return marked(line, starts[at.owner] + int(at.part * cells), "▸", "bold reverse $foreground")
    # the way back has no boundary: it ends in the cell after the bar
    return marked(line, starts[at.owner + 1] - 1, "↩" if at.owner == len(layers) - 1 else "▸", "bold reverse $accent")


def ring_trip_of(plan: Plan, ring: Ring) -> RingTrip | None:
    """A token's round of `plan`; None without hops, before all were measured, and for ranks (they work in parallel)."""
    if is_of_ranks(plan) or not ring.is_measured or len(ring.hops) != len(plan.stages):
        return None
    hops = {stage.device_id: hop for stage, hop in zip(plan.stages, ring.hops, strict=True)}
    owners = [hops[owner.device_id] for owner in plan.owners]
    legs = tuple((hop.compute_s or 0.0, hop.transfer_s or 0.0) for hop in owners)
    trip_s = _trip_s(legs)
    if trip_s <= 0:
        return None
    return RingTrip(legs, next((f for f in _FACTORS if trip_s * f >= ROUND_S), _FACTORS[-1]))


def position_of(trip: RingTrip, elapsed_s: float) -> TokenPosition | None:
    """The token's position `elapsed_s` after its round began on the screen; None after the round."""
    left_s = elapsed_s / trip.slowed
    for owner, leg in enumerate(trip.legs):
        for is_hop, seconds in enumerate(leg):
            if left_s < seconds:
                return TokenPosition(owner, bool(is_hop), left_s / seconds)
            left_s -= seconds
    return None


def _trip_s(legs: tuple[tuple[float, float], ...]) -> float:
    return sum(map(sum, legs))
