"""Pane 2: which Mac holds which layers."""

from __future__ import annotations

from textual.content import Content

from core.events import Stage, StageState
from tui.format import (
    BAD,
    DIM,
    TEXTURES,
    TINTS,
    WARN,
    Mark,
    count,
    duration,
    fit,
    gauge,
    gigabytes,
    gigabytes_short,
    layer_range,
    shares,
)
from tui.recovery import held, part_mark
from tui.state import UiState
from tui.survival import survival
from tui.widgets.pane import Drawing, Pane

_NO_PLAN = "No model is loaded.\n\nCtrl+O chooses one. Its layers are then divided by\nthe memory of the paired Macs."


class SplitPane(Pane):
    """The plan as a bar, and a line for every stage."""

    HELP = """Which Mac holds which layers, in the order of the layers. Every stage has its own texture.

GB is what a stage holds: weights and room for the conversation (KV). "free" is what is left of its budget then. \
Splitting buys capacity: a model that fits one Mac is fastest there."""

    def draw(self, state: UiState, width: int) -> Drawing:
        """The plan, or why there is none."""
        plan = state.snapshot.plan
        title = (
            f"2 Layer split · {fit(plan.model, width - 28).rstrip()} ({plan.layers} layers)"
            if plan
            else "2 Layer split"
        )
        return Drawing(title, split_content(state, width), _subtitle(state))


def _subtitle(state: UiState) -> str:
    if recovery := held(state.snapshot):
        return {"hold": "paused", "replan": "looking for another split", "wait": "waiting"}.get(
            recovery.state, "rebuilding"
        )
    match state.snapshot.plan_status:
        case "ready":
            return "ready" if state.load_s is None else f"ready · loaded in {duration(state.load_s)}"
        case "none":
            return ""
        case status:
            return status


def split_content(state: UiState, width: int) -> Content:
    """The split in `width` cells."""
    snapshot = state.snapshot
    lines: list[Content] = []
    if snapshot.plan_status == "broken" and snapshot.plan_problem is not None:
        problem = snapshot.plan_problem
        lines.append(Content.assemble(("✗ broken  ", BAD), problem.what))
        if problem.fix:
            lines.append(Content.styled(f"→ {problem.fix}", WARN))
    plan = snapshot.plan
    if plan is None:
        return Content("\n").join(lines) if lines else Content(_NO_PLAN)
    lines.append(split_bar([s.stop - s.start for s in plan.owners], width))
    lines.append(_head(width))
    states = {s.device_id: s for s in snapshot.stages}
    lines += [
        _stage_line(i, s, part_mark(snapshot, s), states.get(s.device_id), width, is_head=s is plan.head)
        for i, s in enumerate(plan.owners)
    ]
    kv = sum(s.kv_bytes for s in plan.stages)
    lines.append(Content.styled(f"{plan.topology} · context {count(plan.context)} (KV {gigabytes(kv)} GB) in all", DIM))
    if words := survival(plan):
        lines.append(Content.styled(words, DIM))
    return Content("\n").join(lines)


def split_bar(layers: list[int], width: int) -> Content:
    """One bar of `width` cells, a texture and a colour a stage."""
    return Content.assemble(
        *((TEXTURES[i % len(TEXTURES)] * cells, TINTS[i % len(TINTS)]) for i, cells in enumerate(shares(layers, width)))
    )


def _head(width: int) -> Content:
    text = (
        "  "
        + fit("Mac", _name_width(width))
        + fit("layers", 12)
        + fit("GB", 5, right=True)
        + fit("free", 9, right=True)
    )
    return Content.styled(text, DIM)


def _name_width(width: int) -> int:
    return max(8, width - 28)


def _stage_line(index: int, stage: Stage, mark: Mark, now: StageState | None, width: int, *, is_head: bool) -> Content:
    size = stage.weight_bytes + stage.kv_bytes
    label = f"{index + 1} {stage.peer}" + (" (you)" if is_head else "")
    free = f"{gigabytes_short(max(0, stage.budget_bytes - size))} GB"
    tail = Content(fit(gigabytes_short(size), 5, right=True) + fit(free, 9, right=True))
    if mark.word != "ready":
        loading = now is not None and mark.word == "loading"
        bar = gauge(now.done_bytes, now.total_bytes or stage.weight_bytes, 5) if now and loading else mark.glyph
        tail = Content.styled(fit(f"{bar} {mark.word}", 14, right=True), mark.style)
    return Content.assemble(
        (TEXTURES[index % len(TEXTURES)] + " ", TINTS[index % len(TINTS)]),
        fit(label, _name_width(width)),
        fit(layer_range(stage.start, stage.stop), 7),
        (fit(f"({stage.stop - stage.start})", 5), DIM),
        tail,
    )
