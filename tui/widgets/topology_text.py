"""Text of the topology chooser. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len
from textual.content import Content

from core.events import Plan, Stage, Topology
from core.plan.topology import TOPOLOGIES
from core.requests.plans import Forecast, PlanPreview
from tui.state.format import BAD, DIM, GOOD, WARN, Mark, duration, fit, gigabytes_short, plural
from tui.state.plan_words import all_reduce_share, faster, is_of_ranks, part_of
from tui.widgets.banner import problem_content
from tui.widgets.text_view import title_line

_NAME, _LAYERS, _SENDS = 12, 9, 13


class Now(NamedTuple):
    """The mark of the loaded topology, and the number of running answers."""

    plan: Plan | None
    mark: Mark
    answers: int


def title_content(model: str, asked: int, of: int, width: int) -> Content:
    right = f"planning · {asked} of {of}" if model and asked < of else ""
    return title_line("Topology", right, width, more=f" · {model}" if model else "", style=DIM)


def row_content(topology: Topology, preview: PlanPreview | None, now: Now, width: int) -> Content:
    mark = mark_of(topology, preview, now)
    forecast = preview.forecast if preview and preview.plan else None
    rate = f"{'' if forecast.measured else '≈ '}{forecast.tokens_per_s:.1f} tok/s" if forecast else ""
    words = fit(f" {topology}", 10) + fit(mark.word, max(0, width - 12 - cell_len(rate))) + " " + rate
    return Content.assemble((mark.glyph, mark.style), fit(words, width - 1))


def mark_of(topology: Topology, preview: PlanPreview | None, now: Now) -> Mark:
    """Whether it is loaded, possible, or not planned yet."""
    if now.plan and now.plan.topology == topology:
        return now.mark
    if preview is None:
        return Mark("◌", "planning", DIM)
    if preview.plan is None:
        return Mark("✗", "not possible", BAD)
    return Mark("✓", plural(len(preview.plan.stages), "Mac"), GOOD)


def topology_content(
    topology: Topology, preview: PlanPreview | None, now: Now, others: Sequence[str], width: int
) -> Content:
    """All about one topology; `others` are the names of connected Macs."""
    lines = [Content(TOPOLOGIES[topology].meaning), Content("")]
    if preview is None:
        return Content("\n").join([*lines, Content.styled("Planning…", DIM)])
    if split := preview.plan or preview.draft:
        lines += [*_ring_lines(split, width), Content(""), *_mac_lines(split, preview, others, width), Content("")]
        # the context is the same in every topology
        lines += [note_content(note) + "\n" for note in split.notes if not note.startswith("Context:")]
    if preview.forecast and preview.plan:
        lines += [*forecast_lines(preview.forecast), Content("")]
    lines += _problem_lines(preview)
    return Content("\n").join([*lines, _next_step(topology, preview, now)])


def loading_words(plan: Plan, answers: int) -> str:
    what = f"The model is unloaded and loaded again on {plural(len(plan.stages), 'Mac')}."
    if not answers:
        return what
    stopped = "The running answer stops" if answers == 1 else f"{answers} running answers stop"
    return f"{what}\n\n{stopped}. What is written stays; c continues it once the model is loaded."


def token_path(plan: Plan) -> list[str]:
    """The Macs in the order a token visits them, with what each does; ranks work at the same time."""
    head = plan.head
    if is_of_ranks(plan):
        return [f"{stage.peer} {part_of(plan, stage)}{', output' * (stage is head)}" for stage in plan.stages]
    steps = [f"{stage.peer} {_does(plan, stage)}" for stage in plan.stages]
    if len(steps) == 1:
        return steps
    if head.start:
        return [f"{head.peer} asks", *steps[1:], steps[0]]
    return [*steps, f"{head.peer} output" if plan.output == head.device_id else f"{head.peer} gets the token"]


def _does(plan: Plan, stage: Stage) -> str:
    outputs = stage.stop == plan.layers and stage.device_id == plan.output
    embeds = ["embeds"] if stage.start == 0 else []
    return ", ".join([*embeds, part_of(plan, stage), *(["output"] if outputs else [])])


def _ring_lines(plan: Plan, width: int) -> list[Content]:
    lines, line, then = [], "", "+" if is_of_ranks(plan) else "→"
    for step in token_path(plan):
        if line and cell_len(f"{line} {then} {step}") > width:
            lines.append(line)
            line = f"  {then} {step}"
        else:
            line = f"{line} {then} {step}" if line else step
    return [Content.styled(each, "bold") for each in (*lines, line)]


def _mac_lines(plan: Plan, preview: PlanPreview, others: Sequence[str], width: int) -> list[Content]:
    room = max(0, width - _NAME - _LAYERS - _SENDS)
    part = "rank" if is_of_ranks(plan) else "layers"
    head = fit("Mac", _NAME) + fit(part, _LAYERS) + fit("sends/token", _SENDS) + fit("sees", room)
    sizes = [f"{n} B" if n < 1000 else f"{n / 1000:.1f} KB" for n in preview.hop_bytes] or ["–"] * len(plan.stages)
    rows = [
        _row(stage.peer, part_of(plan, stage).removeprefix("rank "), size, seen, room)
        for stage, size, seen in zip(plan.stages, sizes, preview.sees, strict=False)
    ]
    taking_part = {stage.peer for stage in plan.stages}
    idle = [_row(name, "–", "–", "nothing", room) for name in others if name not in taking_part]
    return [Content.styled(head, DIM), *rows, *idle]


def _row(name: str, layers: str, sends: str, seen: str, room: int) -> Content:
    style = GOOD if seen == "nothing" else WARN if "logits" in seen or "token" in seen else ""
    cells = fit(name, _NAME - 1) + " " + fit(layers, _LAYERS) + fit(sends, _SENDS)
    return Content.assemble(cells, (fit(seen, room).rstrip(), style))


def forecast_lines(forecast: Forecast) -> list[Content]:
    """Speed, time to the first token, load time, and advice."""
    basis = "measured" if forecast.measured else "estimated"
    lines = [
        Content.assemble("Speed        ", (f"{forecast.tokens_per_s:.1f} tok/s", "bold"), (f"  ({basis})", DIM)),
        Content(f"First token  {prompt_words(forecast)}"),
        Content(f"Load time    about {duration(forecast.load_s)}"),
    ]
    return [*lines, *all_reduce_lines(forecast, "All-reduce   ")]


def all_reduce_lines(forecast: Forecast, label: str) -> list[Content]:
    """The time of the all-reduces, labelled `label`, and how it compares with one Mac."""
    lines = [Content(label + words)] if (words := all_reduce_share(forecast)) else []
    if better := faster(forecast):
        lines.append(Content.styled(better, GOOD))
    if forecast.advice:
        lines.append(Content.styled(f"▲ {forecast.advice}", WARN))
    return lines


def prompt_words(forecast: Forecast) -> str:
    if forecast.prompt_s is None:
        return "not measured yet"
    return f"about {duration(forecast.prompt_s)} per 1k prompt tokens"


def _problem_lines(preview: PlanPreview) -> list[Content]:
    if preview.problem:
        return [problem_content(preview.problem), Content("")]
    lacking = [s.peer for s in preview.plan.stages if s.device_id in preview.missing_on] if preview.plan else []
    if not lacking:
        return []
    what = f"{gigabytes_short(preview.missing_bytes)} GB are copied to {' and '.join(lacking)} first."
    return [Content.assemble(("↓ ", WARN), what), Content("")]


def _next_step(topology: Topology, preview: PlanPreview, now: Now) -> Content:
    if now.plan and now.plan.topology == topology:
        return Content.styled(f"{now.mark.glyph} {now.mark.word}", now.mark.style)
    if preview.plan is None:
        return Content.styled("It can't be loaded this way right now.", DIM)
    return Content.styled("Enter: reload this way (asks first)" if now.plan else "Enter: load this way", DIM)


def is_of_sight(note: str) -> bool:
    return any(words in note for words in (" sees ", "Every Mac ", "not encrypted"))


def note_content(note: str) -> Content:
    return Content.styled(f"▲ {note}", WARN) if is_of_sight(note) else Content.styled(note, DIM)
