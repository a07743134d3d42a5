"""The bar of pane 2, with a moving token while an answer is written."""

from __future__ import annotations

import time
from collections.abc import Sequence

from textual.content import Content

from tui.state.hops import ring_of
from tui.state.state import UiState
from tui.state.token_position import RingTrip, TokenPosition, position_of, ring_trip_of
from tui.widgets.layer_bar import layer_bar, marked, part_starts
from tui.widgets.text_view import TextView

# a short line, redrawn at most five times a second to stay cheap
STEP_S = 0.2


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
        plan = state.snapshot.plan
        self._layers = [owner.stop - owner.start for owner in plan.owners] if plan else []
        self.display = bool(plan)
        moves = plan and state.snapshot.running and state.snapshot.plan_status == "ready"
        self._next = (
            ring_trip_of(plan, ring_of(state)) if plan and moves and self.app.animation_level != "none" else None
        )
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
