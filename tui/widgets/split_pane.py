"""Pane 2: which Mac holds which layers."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.content import Content

from core.events import Plan, Stage, StageState
from tui.state.bars import TEXTURES, TINTS, gauge
from tui.state.disks import own_id
from tui.state.format import BAD, DIM, WARN, Mark, duration, fit, gigabytes, gigabytes_short
from tui.state.plan_words import context_length, part_of, survival
from tui.state.recovery import held, part_mark
from tui.state.seat import led_words
from tui.state.state import UiState
from tui.widgets.banner import problem_content
from tui.widgets.pane import Drawing, Pane
from tui.widgets.token_bar import TokenBar

_NO_PLAN = "No model is loaded.\n\nCtrl+O chooses one. Its layers are then divided by the paired Macs' memory."
_RANGE, _MEMORY, _GAUGE = 8, 19, 7


class SplitPane(Pane):
    """The plan as a bar, and one line per stage."""

    HELP = """Which Mac holds which layers, in layer order. Every stage has its own texture. While an answer is \
written, ▸ shows one token on its way round, in slow motion, with the times that were measured.

GB held are weights and cache, out of what the Mac may use. Splitting is for models that don't fit on one Mac: a \
model that fits is fastest there."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._token_bar = TokenBar()

    def compose(self) -> ComposeResult:
        yield self._token_bar
        yield from super().compose()

    def draw(self, state: UiState, width: int) -> Drawing:
        self._token_bar.show(state)
        plan = state.snapshot.used_plan
        more = f" · {fit(plan.model, max(1, width - 32)).rstrip()} ({plan.layers} layers)" if plan else ""
        return Drawing(f"2 Layer split{more}", split_content(state, width), self._token_bar.caption or _subtitle(state))


def _subtitle(state: UiState) -> str:
    if recovery := held(state.snapshot):
        known = {"hold": "paused", "replan": "looking for another split", "wait": "waiting"}
        return known.get(recovery.state, "rebuilding")
    status = state.snapshot.chat_status
    if status == "ready" and state.load_s is not None:
        return f"ready · loaded in {duration(state.load_s)}"
    return "" if status == "none" else status


def split_content(state: UiState, width: int) -> Content:
    snapshot = state.snapshot
    lines: list[Content] = []
    if snapshot.plan_status == "broken" and snapshot.plan_problem is not None:
        lines.append(problem_content(snapshot.plan_problem, "✗ broken  "))
    plan = snapshot.used_plan
    lines += [Content(led_words(each, snapshot)) for each in snapshot.elsewhere]
    if plan is None:
        return Content("\n").join(lines) if lines else Content(_NO_PLAN)
    lines.append(_head(width))
    states = {s.device_id: s for s in snapshot.stages}
    you = own_id(snapshot) if snapshot.host else plan.head.device_id
    lines += [
        _stage_line(i, s, part_mark(snapshot, s), states.get(s.device_id), width, plan, you)
        for i, s in enumerate(plan.owners)
    ]
    kv = sum(s.kv_bytes for s in plan.stages)
    context = f"{plan.topology} · {context_length(plan.context)} context (cache {gigabytes(kv)} GB in total)"
    lines.append(Content.styled(fit(context, width).rstrip(), DIM))
    if plan.draft:
        lines.append(Content.styled(f"draft model {plan.draft} on {plan.head.peer}", DIM))
    if snapshot.advice and snapshot.plan_status == "ready":
        lines.append(Content.styled(f"▲ {snapshot.advice}", WARN))
    if words := survival(plan):
        lines.append(Content.styled(words, DIM))
    return Content("\n").join(lines)


def _head(width: int) -> Content:
    text = "  " + fit("Mac", _name_width(width)) + fit("layers", _RANGE) + fit("GB held/budget", _MEMORY, right=True)
    return Content.styled(text, DIM)


def _name_width(width: int) -> int:
    return max(8, min(28, width - 2 - _RANGE - _MEMORY))


def _stage_line(
    index: int, stage: Stage, mark: Mark, now: StageState | None, width: int, plan: Plan, you: str
) -> Content:
    label = f"{index + 1} {stage.peer}" + (" (you)" if stage.device_id == you else "")
    if mark.word == "ready":
        tail = _memory(stage)
    else:
        loading = now is not None and mark.word == "loading"
        bar = gauge(now.done_bytes, now.total_bytes or stage.weight_bytes, 5) if now and loading else mark.glyph
        tail = Content.styled(fit(f"{bar} {mark.word}", _MEMORY, right=True), mark.style)
    return Content.assemble(
        (TEXTURES[index % len(TEXTURES)] + " ", TINTS[index % len(TINTS)]),
        fit(label, _name_width(width) - 1) + " ",
        fit(part_of(plan, stage), _RANGE),
        tail,
    )


def _memory(stage: Stage) -> Content:
    size = stage.needed_bytes
    text = f"{gigabytes_short(size)}/{gigabytes_short(stage.budget_bytes)}"
    style = "$primary" if size <= stage.budget_bytes else BAD
    return Content.assemble((gauge(size, stage.budget_bytes, _GAUGE), style), fit(text, _MEMORY - _GAUGE, right=True))
