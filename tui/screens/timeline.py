"""The timeline screen: the last steps of the ring as bars on one clock, and the time of each phase."""

from __future__ import annotations

from typing import Final

import msgspec
from rich.cells import cell_len
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content

from core.events import Snapshot
from core.requests.trace import MOST_TRACED_S, PHASES, Phase, StageTrace, TraceRequest, TraceResult
from core.trace.phases import StepPhases, steps_of
from tui.control.keymap import TIMELINE
from tui.screens.base import NodeScreen, Sources
from tui.state.format import DIM, WARN, between, duration, fit, plural
from tui.state.seat import nothing_words
from tui.state.state import UiState, cleaned
from tui.state.timeline import KINDS, Doing, Steps, Track, TrackName, cells, ends_of, next_name, steps_in, tracks_of
from tui.widgets.text_view import TextView, title_line

_NAME, _LANE = 11, 8
_PHASE, _COLUMN = 16, 12
# glyph, style and words of the legend
_DOINGS: Final[dict[Doing, tuple[str, str, str]]] = {
    "computes": ("█", "$primary", "computes"),
    "moves": ("▒", "$accent", "encodes, encrypts, sends, reads"),
    "waits": ("·", DIM, "waits"),
}
_PHASE_WORDS: Final[dict[Phase, str]] = {
    "embed": "embed tokens",
    "recv_wait": "wait",
    "to_bytes": "receive",
    "aead_open": "decrypt",
    "codec_decode": "decode",
    "layers_compute": "compute layers",
    "codec_encode": "encode",
    "aead_seal": "encrypt",
    "to_i32": "pick token",
    "send_hop": "send",
    "logits_compute": "norm and output",
    "allgather": "share tokens",
    "readback": "read tokens",
}

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
        self._below.border_title = Content(phases_title(traced, alone))
        self._title.draw(title_content(traced, steps, at, width))
        self._above.border_title = Content("The last steps" + (" · tracing …" if self._is_tracing else ""))
        if traced is None:
            now, attached = self._state.snapshot, self._state.attached
            why = why_empty(now, attached=attached, tracing=self._is_tracing, failed=self._has_failed)
            self._bars.draw(why)
            self._phases.draw(Content.styled("No step to show.", DIM))
            return
        inside = self._above.scrollable_content_region.width
        self._bars.draw(bars_content(traced, steps, at, inside, alone))
        room = inside - 1  # a scrollbar may appear
        below = track_content(traced, steps, at, alone, room) if alone else None
        self._phases.draw(below or phases_content(traced, steps.numbers[at], room))

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


def title_content(traced: TraceResult | None, steps: Steps, at: int, width: int) -> Content:
    if traced is None or not steps.numbers:
        return title_line("Timeline", "", width)
    step = steps.numbers[at]
    what = f"{KINDS[steps.kinds[step]]} step {step}, lane {steps.lanes[step]} · {at + 1} of {len(steps.numbers)}"
    return title_line("Timeline", what, width, more=f" · {traced.model}")


def why_empty(now: Snapshot, *, attached: bool, tracing: bool, failed: bool = False) -> Content:
    """Why there is nothing to see, and what to do."""
    if not attached:
        return Content.styled("macluster's service doesn't answer; retrying every second.", WARN)
    if now.plan is None:
        return Content(nothing_words(now))
    if tracing:
        return Content(f"Tracing {plural(len(now.plan.stages), 'stage')} of {now.plan.model}…")
    if failed and now.batch.running:
        return Content("The trace failed. r tries again.")
    if now.batch.queue:
        return Content("An answer is waiting for its first step. It is traced then.")
    return Content("No answer is running. Ask something: it is traced as soon as it runs.")


def bars_content(traced: TraceResult, steps: Steps, at: int, width: int, alone: TrackName | None = None) -> Content:
    """One line per stage and lane up to the step at place `at`, then the clock; other tracks are dimmed if `alone`."""
    chosen = steps.last(at)
    tracks = tracks_of(traced, steps, chosen)
    ends, room = ends_of(tracks), max(1, width - _NAME - _LANE)
    lines = [_pointer(ends, ends_of(tracks, chosen[-1]), room)]
    lines += [
        _line(traced, track, tracks[number - 1] if number else None, ends, room, alone)
        for number, track in enumerate(tracks)
    ]
    seconds = ends[1] - ends[0]
    lines.append(Content.styled(" " * (_NAME + _LANE) + between("0", duration(seconds), room), DIM))
    lines.append(Content.assemble(*_legend()))
    lines.append(Content.styled(clock_words(traced), DIM))
    return Content("\n").join(lines)


def clock_words(traced: TraceResult) -> str:
    head, *others = traced.stages
    if not others:
        return f"Times by the clock of {head.mac}."
    errors = ", ".join(f"{stage.mac} ±{duration(stage.error_s)}" for stage in others)
    return f"Times by the clock of {head.mac}. Clock error: {errors}."


def phases_content(traced: TraceResult, step: int, width: int) -> Content:
    """Where the time of `step` went, in microseconds: one line per phase, one column per stage."""
    return _table([(stage.mac, _phases(stage, step)) for stage in traced.stages], width)


def track_content(traced: TraceResult, steps: Steps, at: int, track: TrackName, width: int) -> Content:
    chosen = [step for step in steps.last(at) if steps.lanes[step] == track.lane]
    return _table([(f"step {step}", _phases(traced.stages[track.stage], step)) for step in chosen], width)


def phases_title(traced: TraceResult | None, alone: TrackName | None) -> str:
    if traced is None or alone is None:
        return "Where the time of this step went"
    return f"Where the time of lane {alone.lane} went on {traced.stages[alone.stage].mac}"


def _phases(stage: StageTrace, step: int) -> StepPhases:
    return steps_of([turn for turn in stage.turns if turn.step == step])[step]


def _table(columns: list[tuple[str, StepPhases]], width: int) -> Content:
    of_each = [phases for _, phases in columns]
    column = max(1, min(_COLUMN, (width - _PHASE) // len(columns)))
    heads = "".join(fit(head, column - 1, right=True).rjust(column) for head, _ in columns)
    lines = [Content.styled(fit("µs", _PHASE) + heads, DIM)]
    for phase in PHASES:
        if any(each.seconds[phase] for each in of_each):
            figures = _figures([each.seconds[phase] for each in of_each], column)
            lines.append(Content(fit(_PHASE_WORDS[phase], _PHASE) + figures))
    totals = fit("whole step", _PHASE) + _figures([each.total_s for each in of_each], column)
    lines.append(Content.styled(totals, "bold"))
    return Content("\n").join(lines)


def _figures(seconds: list[float], column: int) -> str:
    return "".join(fit(f"{1e6 * each:.0f}" if each else "–", column, right=True) for each in seconds)


def _line(
    traced: TraceResult,
    track: Track,
    before: Track | None,
    ends: tuple[float, float],
    room: int,
    alone: TrackName | None,
) -> Content:
    is_first = before is None or before.stage != track.stage
    mac = fit(traced.stages[track.stage].mac if is_first else "", _NAME)
    lane = fit(f"{'▸' if track.name == alone else ''}lane {track.lane}", _LANE)
    bars = (_DOINGS[doing][:2] if doing else " " for doing in cells(track.bars, ends, room))
    line = Content.assemble(mac, lane, *bars)
    return Content.styled(line.plain, DIM) if alone not in (None, track.name) else line


def _pointer(ends: tuple[float, float], own: tuple[float, float], room: int) -> Content:
    whole = ends[1] - ends[0]
    start, stop = (round(room * (at - ends[0]) / whole) if whole > 0 else 0 for at in own)
    word = f" {duration(own[1] - own[0])} "
    line = "├" + "─" * (stop - start - 2) + "┤" if stop - start > 2 else "┴"
    if len(line) >= cell_len(word) + 2:
        line = line[:1] + word.center(len(line) - 2, "─") + line[-1]
    return Content(" " * (_NAME + _LANE + max(0, min(start, room - len(line)))) + line)


def _legend() -> list[str | tuple[str, str]]:
    parts: list[str | tuple[str, str]] = [" " * (_NAME + _LANE)]
    for glyph, style, words in _DOINGS.values():
        parts += [(glyph, style), f" {words}  "]
    return parts
