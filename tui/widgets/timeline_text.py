"""What the timeline screen says: bars of the last steps, and where the time of one of them went. Pure."""

from __future__ import annotations

from typing import Final

from rich.cells import cell_len
from textual.content import Content

from core.events import Snapshot
from core.requests.trace import PHASES, STEP_TOTAL, Phase, StageTrace, TraceResult
from core.trace.phases import StepPhases, steps_of
from tui.state.format import DIM, WARN, between, duration, fit, plural
from tui.state.timeline import KINDS, Doing, Steps, Track, TrackName, cells, ends_of, tracks_of

_TITLE: Final = " Timeline"
_NAME, _LANE = 11, 8
_PHASE, _COLUMN, _WORDS = 16, 12, 22
_GLYPHS: Final[dict[Doing | None, tuple[str, str]]] = {
    "computes": ("█", "$primary"),
    "moves": ("▒", "$accent"),
    "waits": ("·", DIM),
    None: (" ", DIM),
}
_LEGEND: Final[dict[Doing, str]] = {"computes": "computes", "moves": "packs, seals, sends, reads", "waits": "waits"}
_MEANS: Final[dict[Phase, str]] = {
    "embed": "looks up the tokens",
    "recv_wait": "waits for a frame",
    "to_bytes": "takes the frame in",
    "aead_open": "opens its seal",
    "codec_decode": "bytes to arrays",
    "layers_compute": "computes its layers",
    "codec_encode": "arrays to bytes",
    "aead_seal": "seals the frame",
    "to_i32": "chooses what is next",
    "send_hop": "hands the frame on",
    "logits_compute": "norm, output, choice",
    "allgather": "tokens to the ranks",
    "readback": "reads the tokens",
}


def title_content(traced: TraceResult | None, steps: Steps, at: int, width: int) -> Content:
    """Which step it is, of how many, in `width` cells."""
    if traced is None or not steps.numbers:
        return Content.styled(fit(_TITLE, width), "bold")
    step = steps.numbers[at]
    what = f"{KINDS[steps.kinds[step]]} step {step}, lane {steps.lanes[step]} · {at + 1} of {len(steps.numbers)} "
    return Content(between(f"{_TITLE} · {traced.model}", what, width)).stylize("bold", 0, len(_TITLE))


def why_empty(now: Snapshot, *, attached: bool, tracing: bool, failed: bool = False) -> Content:
    """Why there is nothing to see, and what to do."""
    if not attached:
        return Content.styled("The node of this Mac does not answer; it is tried again every second.", WARN)
    if now.plan is None:
        return Content("No model is loaded, so there are no steps. Ctrl+O chooses one.")
    if tracing:
        return Content(f"{plural(len(now.plan.stages), 'stage')} of {now.plan.model}: noting what they do …")
    if failed and now.batch.running:
        return Content("No trace was made of the answer that is running: r tries again.")
    if now.batch.queue:
        return Content("An answer waits for its first step: it is traced as soon as that is done.")
    return Content("No answer is running, so there is no step to see. Ask something: it is traced as soon as it runs.")


def bars_content(traced: TraceResult, steps: Steps, at: int, width: int, alone: TrackName | None = None) -> Content:
    """A line for each stage and lane, of the step in the place `at` and those before it; below, the clock. Where one of
    them is looked at `alone`, the others are dim.
    """
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
    """By whose clock all of it is, and how far each of the others may be wrong."""
    head, *others = traced.stages
    if not others:
        return f"All by the clock of {head.mac}."
    errors = ", ".join(f"{stage.mac} ±{duration(stage.error_s)}" for stage in others)
    return f"All by the clock of {head.mac}; how far the others are off is known to: {errors}."


def phases_content(traced: TraceResult, step: int, width: int) -> Content:
    """Where the time of `step` went: a line for each phase that took any, a column for each stage, in microseconds.
    Where there is room, what the phase is.
    """
    return _table([(stage.mac, _phases(stage, step)) for stage in traced.stages], width)


def track_content(traced: TraceResult, steps: Steps, at: int, track: TrackName, width: int) -> Content:
    """As `phases_content` of one stage, with a column for each step of one lane that has a bar."""
    chosen = [step for step in steps.last(at) if steps.lanes[step] == track.lane]
    return _table([(f"step {step}", _phases(traced.stages[track.stage], step)) for step in chosen], width)


def phases_title(traced: TraceResult | None, alone: TrackName | None) -> str:
    """What the figures below are of."""
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
    is_wide = width >= _PHASE + column * len(columns) + _WORDS
    for phase in PHASES:
        if any(each.seconds[phase] for each in of_each):
            figures = fit(phase, _PHASE) + _figures([each.seconds[phase] for each in of_each], column)
            lines.append(Content.assemble(figures, (f"  {_MEANS[phase]}" if is_wide else "", DIM)))
    totals = fit(STEP_TOTAL, _PHASE) + _figures([each.total_s for each in of_each], column)
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
    line = Content.assemble(mac, lane, *(_GLYPHS[doing] for doing in cells(track.bars, ends, room)))
    return Content.styled(line.plain, DIM) if alone not in (None, track.name) else line


def _pointer(ends: tuple[float, float], own: tuple[float, float], room: int) -> Content:
    """From where to where the step goes that the keys are at."""
    whole = ends[1] - ends[0]
    start, stop = (round(room * (at - ends[0]) / whole) if whole > 0 else 0 for at in own)
    word = f" {duration(own[1] - own[0])} "
    line = "├" + "─" * (stop - start - 2) + "┤" if stop - start > 2 else "┴"
    if len(line) >= cell_len(word) + 2:
        line = line[:1] + word.center(len(line) - 2, "─") + line[-1]
    return Content(" " * (_NAME + _LANE + max(0, min(start, room - len(line)))) + line)


def _legend() -> list[str | tuple[str, str]]:
    parts: list[str | tuple[str, str]] = [" " * (_NAME + _LANE)]
    for doing, words in _LEGEND.items():
        parts += [_GLYPHS[doing], f" {words}  "]
    return parts
