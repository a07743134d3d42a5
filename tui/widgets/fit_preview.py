"""Where the layers of a model would go, or how far its loading is."""

from __future__ import annotations

from textual.content import Content

from core.events import Plan, Stage
from core.requests import ModelChoice
from tui.format import BAD, DIM, GOOD, WARN, count, fit, gauge, gigabytes, gigabytes_short, layer_range
from tui.state import UiState
from tui.survival import survival
from tui.widgets.chat_log import loading_lines
from tui.widgets.pane import Drawing, Pane


class FitPreview(Pane):
    """The right or lower half of the picker."""

    HELP = """How the model under the cursor would be divided. A bar is what it needs on a Mac of the budget there, \
weights and KV together; the range is its layers."""

    def __init__(self) -> None:
        super().__init__(id="preview")
        self._choice: ModelChoice | None = None

    def point(self, choice: ModelChoice | None) -> None:
        """Preview `choice`."""
        self._choice = choice
        self.show(self._state)

    def draw(self, state: UiState, width: int) -> Drawing:
        """Progress while something loads, else the fit."""
        status = state.snapshot.plan_status
        if status == "loading":
            return Drawing("Loading", progress_content(state))
        return Drawing("Fit preview", fit_content(self._choice, state, width))


def progress_content(state: UiState) -> Content:
    """How far every Mac is."""
    plan = state.snapshot.plan
    name = plan.model if plan is not None else ""
    done, total = (sum(getattr(s, f) for s in state.snapshot.stages) for f in ("done_bytes", "total_bytes"))
    share = f" · {100 * done // total} %" if total else ""
    return Content("\n").join(
        [
            Content.assemble((name, "bold"), share),
            Content(""),
            *loading_lines(state),
            Content(""),
            Content.styled("Esc cancels · you can leave with F2, loading goes on", DIM),
        ]
    )


def fit_content(choice: ModelChoice | None, state: UiState, width: int) -> Content:
    """The preview of one model in `width` cells."""
    if choice is None:
        return Content.styled("Nothing to show.", DIM)
    plan, problem = choice.preview.plan, choice.preview.problem
    split = plan or choice.preview.draft
    lines = [Content.styled(choice.name, "bold"), *(_facts(choice, split) if choice.layers else []), Content("")]
    if split is not None:
        lines += [*(_stage_line(s, width) for s in split.owners), Content("")]
    if plan is not None:
        one = len(plan.stages) == 1
        how = "One Mac, no hops." if one else f"{plan.topology}, {len(plan.stages)} hops a token."
        lines += [Content.styled(line, DIM) for line in (how, *plan.notes, survival(plan)) if line]
    if problem is not None:
        lines.append(Content.assemble(("✗ ", BAD), problem.what))
        if problem.fix:
            lines.append(Content.styled(f"→ {problem.fix}", WARN))
    broken = state.snapshot.plan_problem
    if state.snapshot.plan_status == "broken" and broken is not None:
        lines += [Content(""), Content.assemble(("✗ the last load failed: ", BAD), broken.what)]
    lines += [Content(""), _next_step(choice)]
    return Content("\n").join(lines)


def _facts(choice: ModelChoice, split: Plan | None) -> list[Content]:
    kv = sum(s.kv_bytes for s in split.stages) if split is not None else choice.preview.kv_bytes
    context = f"context {count(split.context) + ' of ' if split is not None else ''}{count(choice.context_max)}"
    return [
        Content(f"{choice.layers} layers · {gigabytes(choice.total_bytes)} GB weights · {choice.quantization}"),
        Content(f"{context} · KV {gigabytes(kv)} GB" if kv else context),
    ]


def _stage_line(stage: Stage, width: int) -> Content:
    size = stage.weight_bytes + stage.kv_bytes
    name = min(16, max(9, width - 46))
    bar = max(8, min(24, width - name - 24))
    over = size > stage.budget_bytes
    return Content.assemble(
        fit(stage.peer, name - 1) + " ",
        (gauge(size, stage.budget_bytes, bar), BAD if over else "$primary"),
        fit(layer_range(stage.start, stage.stop), 8, right=True),
        fit(f"{gigabytes(size)}/{gigabytes_short(stage.budget_bytes)} GB", 15, right=True),
    )


def _next_step(choice: ModelChoice) -> Content:
    if choice.loaded:
        return Content.styled("● loaded · u unloads it", GOOD)
    if choice.preview.plan is not None:
        return Content.styled("Enter loads it", DIM)
    return Content.styled("It cannot be loaded now.", DIM)
