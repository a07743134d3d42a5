"""The list of models in the picker."""

from __future__ import annotations

from typing import ClassVar, Literal

from textual.binding import BindingType
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from core.requests import ModelChoice
from tui.actions import bindings
from tui.format import BAD, DIM, GOOD, Mark, fit, gigabytes_short, plural
from tui.registry import MODEL_LIST

Order = Literal["best fit", "size", "name"]
ORDERS: tuple[Order, ...] = ("best fit", "size", "name")


class ModelList(OptionList):
    """A line a model; the cursor decides what the preview shows."""

    HELP = """Models on this Mac, and how each would fit the paired Macs. ✓ fits, ● is loaded, ✗ does not fit.

The preview shows where its layers would go, computed from the budgets of the Macs."""

    ACTIONS = MODEL_LIST
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(MODEL_LIST)]

    def __init__(self) -> None:
        super().__init__(id="models", markup=False)
        self._choices: tuple[ModelChoice, ...] = ()

    def show(self, choices: tuple[ModelChoice, ...]) -> None:
        """List `choices`; the cursor stays on the model it was on."""
        if choices == self._choices:
            return
        pointed = self.pointed
        self._choices = choices
        self._draw(pointed.name if pointed is not None else "")

    @property
    def pointed(self) -> ModelChoice | None:
        """The model under the cursor."""
        at = self.highlighted
        return self._choices[at] if at is not None and at < len(self._choices) else None

    def on_resize(self) -> None:
        """Another width: draw again."""
        pointed = self.pointed
        self._draw(pointed.name if pointed is not None else "")

    def _draw(self, name: str) -> None:
        width = self.scrollable_content_region.width
        if width <= 0:
            return
        self.clear_options()
        self.add_options([Option(row_content(c, width)) for c in self._choices])
        names = [c.name for c in self._choices]
        self.highlighted = names.index(name) if name in names else 0 if names else None


def fit_mark(choice: ModelChoice) -> Mark:
    """Whether a model fits; the word is the sentence of the list."""
    plan, problem = choice.preview.plan, choice.preview.problem
    if choice.loaded:
        return Mark("●", "loaded" + (f" on {plural(len(plan.stages), 'Mac')}" if plan else ""), GOOD)
    if plan is not None:
        macs = len(plan.stages)
        return Mark("✓", "1 Mac, no hops" if macs == 1 else plural(macs, "Mac"), GOOD)
    return Mark("✗", problem.what if problem is not None else "does not fit", BAD)


def head_content(width: int) -> Content:
    """The head line above the rows."""
    return Content.styled("  " + _cells("model", "size", "fit", width), DIM)


def row_content(choice: ModelChoice, width: int) -> Content:
    """A row of exactly `width` cells."""
    mark = fit_mark(choice)
    size = f"{gigabytes_short(choice.total_bytes)} GB" if choice.layers else "–"
    text = _cells(choice.name, size, mark.word, width)
    return Content.assemble((mark.glyph + " ", mark.style), (text, DIM if mark.glyph == "✗" else ""))


def _cells(name: str, size: str, verdict: str, width: int) -> str:
    # of the cells, two are the mark's and one is left free at the end
    room = width - 2 - 8 - 2 - 1
    last = min(40, max(16, room // 2))
    return fit(name, room - last) + fit(size, 8, right=True) + "  " + fit(verdict, last)


def arranged(choices: tuple[ModelChoice, ...], text: str, order: Order) -> tuple[ModelChoice, ...]:
    """The models whose name holds `text`, in `order`. Best fit: loaded, then few Macs, then large ones first."""
    wanted = [c for c in choices if text.casefold() in c.name.casefold()]
    match order:
        case "size":
            return tuple(sorted(wanted, key=lambda c: -c.total_bytes))
        case "name":
            return tuple(sorted(wanted, key=lambda c: c.name.casefold()))
        case _:
            return tuple(sorted(wanted, key=_by_fit))


def _by_fit(choice: ModelChoice) -> tuple[int, int, int]:
    plan = choice.preview.plan
    rank = 0 if choice.loaded else 1 if plan is not None else 2
    return rank, len(plan.stages) if plan is not None else 0, -choice.total_bytes
