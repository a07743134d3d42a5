"""The hop screen: time per frame, its phases, the gain of a cable, and a speed test."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from textual.app import ComposeResult
from textual.containers import Container, VerticalScroll
from textual.content import Content

from core.errors import MaclusterError
from core.requests.checks import SpeedRequest
from tui.control.keymap import HOP
from tui.screens.base import NodeScreen, Sources, titled
from tui.state.format import DIM
from tui.state.hop_history import last_of
from tui.state.hop_phases import WINDOWS_S, points_of
from tui.state.hops import Hop, ring_of
from tui.state.seat import nothing_words
from tui.state.state import UiState, cleaned
from tui.widgets import hop_details
from tui.widgets.text_view import TextView

STOPS: Final = 5
STOP_AGAIN_S: Final = 0.1


class HopScreen(NodeScreen):
    """A chart and the phases of a frame; ← and → change the hop."""

    TITLE = "Hop"
    AUTO_FOCUS = "#phases"
    ACTIONS = HOP

    HELP = """How long a frame takes from one Mac to the next. All hops share one scale, so you can compare them.

The clocks of two Macs differ, so the network time is taken as half the round trip. The receiver waits while the other \
Macs work; that isn't the hop's fault.

The speed test sends empty and then full messages between the two Macs, encrypted like everything else."""

    def __init__(self, sources: Sources) -> None:
        super().__init__(sources)
        self._picture = sources.state
        self._ring = ring_of(sources.state)
        self._now = time.time()
        self._at = self._ring.hops.index(self._ring.slowest) if self._ring.slowest else 0
        self._window = 0
        self._is_paused = False
        self._tests: dict[tuple[str, str], hop_details.SpeedTest] = {}
        self._chart, self._speed = TextView(), TextView(id="speed")
        self._phases, self._worth = TextView(), TextView(id="worth")
        self._all = TextView(id="all")
        self._time = VerticalScroll(self._chart, self._speed, self._all, id="time", classes="pane")
        where = VerticalScroll(self._phases, self._worth, id="phases")
        self._where = titled(where, "Where time goes · per frame")

    def parts(self) -> ComposeResult:
        yield Container(self._time, self._where, id="parts")

    def show(self, state: UiState) -> None:
        """Draw the state. A paused chart stands still; a running test goes on."""
        if not self._is_paused:
            self._picture, self._ring, self._now = state, ring_of(state), time.time()
        super().show(state)

    @property
    def hop(self) -> Hop | None:
        return self._ring.hops[self._at % len(self._ring.hops)] if self._ring.hops else None

    def _draw(self, width: int) -> None:
        hop = self.hop
        test = self._tests.get(hop.pair, hop_details.SpeedTest()) if hop else hop_details.SpeedTest()
        self._title.draw(hop_details.title_content(self._picture, self._ring, hop, test, width))
        window_s = WINDOWS_S[self._window]
        self._time.border_title = Content(f"Time per frame · {hop_details.window_word(window_s)}")
        self._time.border_subtitle = Content("paused · p resumes") if self._is_paused else None
        if hop is None:
            self._chart.draw(Content(_why_none(self._picture)))
            self._phases.draw(Content.styled("No hop to show.", DIM))
            return
        inside = self._chart.size.width
        self._chart.draw(hop_details.chart_content(self._picture, self._ring, hop, self._now, window_s, inside))
        self._speed.draw(hop_details.speed_content(test, self._state.speed_test, inside))
        self._all.draw(hop_details.ring_content(self._picture, self._ring, hop, self._now, window_s, inside))
        points = points_of(self._picture, hop.pair, self._now, window_s) or last_of(self._picture.past, hop.pair)
        width = self._where.scrollable_content_region.width
        self._phases.draw(hop_details.phases_content(hop, points, width))
        self._where.border_subtitle = Content(hop_details.frames_word(points)) if points else None
        self._worth.draw(hop_details.worth_content(self._ring, hop, test))

    @property
    def _is_testing(self) -> bool:
        return any(test.is_running for test in self._tests.values())

    async def _measure(self, pair: tuple[str, str]) -> None:
        try:
            found = await self._client.test_speed(SpeedRequest(source=pair[0], target=pair[1]))
            self._show_result(pair, hop_details.SpeedTest(result=found))
        except MaclusterError as error:
            self._show_result(pair, hop_details.SpeedTest(problem=cleaned(error.problem)))

    def _show_result(self, pair: tuple[str, str], test: hop_details.SpeedTest) -> None:
        self._tests[pair] = test
        self.redraw()
        # text with new lines is laid out after the next refresh; only then its end is known
        self.call_after_refresh(self.call_after_refresh, self._speed.scroll_visible, animate=False)

    async def _stop(self) -> None:
        try:
            for _ in range(STOPS):  # the node may get the call that starts a test after the one that stops it
                await self._client.stop_speed_test()
                await asyncio.sleep(STOP_AGAIN_S)
                if not self._is_testing:
                    return
        except MaclusterError:
            return  # the node and the test are gone; the test's own call reports it

    def action_hop(self, step: int) -> None:
        if self._ring.hops:
            self._at = (self._at + step) % len(self._ring.hops)
            self.redraw()

    def action_pause(self) -> None:
        self._is_paused = not self._is_paused
        self.show(self._state)

    def action_window(self) -> None:
        self._window = (self._window + 1) % len(WINDOWS_S)
        self.redraw()

    def action_test(self) -> None:
        hop = self.hop
        if hop is None:
            self.app.notify("There is no hop to test: no model is split over several Macs.")
        elif self._is_testing:
            self.app.notify("A speed test is running. Esc stops it.")
        else:
            # at once: the next key may already be queued
            self._show_result(hop.pair, hop_details.SpeedTest(is_running=True))
            self.run_worker(self._measure(hop.pair), group="speed test", exit_on_error=False)

    def action_scroll_part(self, lines: int) -> None:
        (self._time if self._time.has_focus else self._where).scroll_relative(y=lines, animate=False)

    def action_leave(self) -> None:
        if self._is_testing:
            self.app.run_worker(self._stop(), group="speed test stop", exit_on_error=False)
        self.dismiss()

    async def action_back(self) -> None:
        if self._is_testing:
            self.run_worker(self._stop(), group="speed test stop", exit_on_error=False)
        else:
            self.dismiss()


def _why_none(state: UiState) -> str:
    plan = state.snapshot.plan
    if plan is not None:
        return f"{plan.stages[0].peer} holds the whole model, so there are no hops."
    if state.snapshot.host:
        return nothing_words(state.snapshot)
    return "No hops yet: they appear when a model runs on several Macs.\n\nCtrl+O chooses a model."
