"""The timeline screen: the last steps of the ring as bars on one clock, and the time of each phase."""

from __future__ import annotations

from typing import Final

import msgspec
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content

from core.requests.trace import MOST_TRACED_S, TraceRequest, TraceResult
from tui.control.keymap import TIMELINE
from tui.screens.base import NodeScreen, Sources
from tui.state.format import DIM
from tui.state.state import UiState, cleaned
from tui.state.timeline import Track, TrackName, next_name, steps_in, tracks_of
from tui.widgets import timeline_text
from tui.widgets.text_view import TextView

TRACED_S: Final = 0.5


class TimelineScreen(NodeScreen):
    """Bars, and the phases of one step. ← and → go through the steps, ↑ and ↓ through stages and lanes."""

    TITLE = "Timeline"
    AUTO_FOCUS = "#phases"
    ACTIONS = TIMELINE

    HELP = """What every stage did in the last steps, lane by lane: █ computes, ▒ encodes, encrypts, sends or reads, \
· waits for the others.

All times use this Mac's clock. The clocks of the other Macs are only known to within half a round trip; this error is \
shown below the bars.

Down and Up select one stage and lane: the others are dimmed, and the phases of its steps are shown below. Past the \
first or last one, all are shown again.

The picture stands still; r traces again."""

    def __init__(self, sources: Sources) -> None:
        super().__init__(sources)
        self._traced: TraceResult | None = None
        self._steps = steps_in(TraceResult(model="", seconds=0, stages=()))
        self._at = 0
        self._alone: TrackName | None = None
        self._is_tracing = self._has_failed = False
        self._seconds = TRACED_S
        self._bars, self._phases = TextView(), TextView()
        self._above = Vertical(self._bars, id="bars", classes="pane")
        self._below = VerticalScroll(self._phases, id="phases", classes="pane")

    def parts(self) -> ComposeResult:
        yield from (self._above, self._below)

    def show(self, state: UiState) -> None:
        self._state = state
        if self._traced is None and not self._has_failed and self._is_answering:
            self._trace()
        self.redraw()

    @property
    def _is_answering(self) -> bool:
        now = self._state.snapshot
        return self._state.attached and now.plan_status == "ready" and bool(now.batch.running)

    def _draw(self, width: int) -> None:
        traced, steps, at, alone = self._traced, self._steps, self._at, self._shown_alone
        self._below.border_title = Content(timeline_text.phases_title(traced, alone))
        self._title.draw(timeline_text.title_content(traced, steps, at, width))
        self._above.border_title = Content("The last steps" + (" · tracing …" if self._is_tracing else ""))
        if traced is None:
            now, attached = self._state.snapshot, self._state.attached
            why = timeline_text.why_empty(now, attached=attached, tracing=self._is_tracing, failed=self._has_failed)
            self._bars.draw(why)
            self._phases.draw(Content.styled("No step to show.", DIM))
            return
        inside = self._above.scrollable_content_region.width
        self._bars.draw(timeline_text.bars_content(traced, steps, at, inside, alone))
        room = inside - 1  # a scrollbar may appear
        below = timeline_text.track_content(traced, steps, at, alone, room) if alone else None
        self._phases.draw(below or timeline_text.phases_content(traced, steps.numbers[at], room))

    @property
    def _tracks(self) -> list[Track]:
        return tracks_of(self._traced, self._steps, self._steps.last(self._at)) if self._traced else []

    @property
    def _shown_alone(self) -> TrackName | None:
        return self._alone if self._alone in [track.name for track in self._tracks] else None

    def _trace(self) -> None:
        if not self._is_tracing:
            self._is_tracing = True
            self.run_worker(self._take(), exit_on_error=False)

    async def _take(self) -> None:
        traced = await self.answer_of(self._client.trace(TraceRequest(seconds=self._seconds)))
        self._is_tracing, self._has_failed = False, traced is None
        steps = steps_in(traced) if traced else self._steps
        if traced and not steps.numbers:  # duration of a step
            self._seconds = min(2 * self._seconds, MOST_TRACED_S)
        elif traced:
            stages = tuple(msgspec.structs.replace(stage, mac=cleaned(stage.mac)) for stage in traced.stages)
            self._traced = msgspec.structs.replace(traced, model=cleaned(traced.model), stages=stages)
            self._steps, self._at = steps, len(steps.numbers) - 1
        self.redraw()

    def action_again(self) -> None:
        if self._is_answering:
            self._trace()
            self.redraw()
        else:
            self.app.notify("No answer is running. Ask something first.")

    def action_step(self, steps: int) -> None:
        if self._traced is None:
            self.app.notify("Nothing has been traced yet.")
            return
        self._at = max(0, min(len(self._steps.numbers) - 1, self._at + steps))
        self.redraw()

    def action_row(self, by: int) -> None:
        self._alone = next_name(self._tracks, self._shown_alone, by)
        self.redraw()

    def action_scroll_phases(self, lines: int) -> None:
        self._below.scroll_relative(y=lines, animate=False)
