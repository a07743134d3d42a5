"""The list of models in the picker."""

from __future__ import annotations

from typing import Literal

from textual.content import Content

from core.events import Plan, Snapshot
from core.requests.plans import ModelChoice
from tui.control.keymap import MODEL_LIST
from tui.state.disks import disk_words, left_s, own_id, transfers_of
from tui.state.format import BAD, DIM, GOOD, WARN, Mark, fit, gigabytes_short, plural, rate
from tui.state.progress_rate import left_words
from tui.widgets.item_list import ItemList

Order = Literal["best fit", "size", "name"]
ORDERS: tuple[Order, ...] = ("best fit", "size", "name")


class ModelList(ItemList[ModelChoice]):
    """One line per model."""

    HELP = """Models on the disks of the connected Macs, and how each would fit. ✓ fits, ↓ fits but must first be \
copied to some disks, ● is loaded, ✗ doesn't fit, ○ isn't on this Mac.

h shows models on the Hugging Face hub instead: the largest that fits these Macs first, with its expected speed. They \
are also shown if no disk has a model yet.

The preview shows where the layers would go. Enter loads the model with what you chose there (context, topology, cache \
bits)."""

    ACTIONS = MODEL_LIST
    KEY = "name"

    def __init__(self) -> None:
        super().__init__(id="models")
        self._now = Snapshot()

    def show(self, choices: tuple[ModelChoice, ...], now: Snapshot) -> None:
        self._now = now
        self.show_items(choices)

    def rows_of(self, items: tuple[ModelChoice, ...], width: int) -> list[Content]:
        return [row_content(choice, self._now, width) for choice in items]

    def why_not(self, run: str) -> str:
        if run != "select":
            return ""
        return why_not_load(self.pointed) if self.pointed else "No model is listed."

    def word_of(self, run: str) -> str:
        return "Download" if run == "select" and self.pointed and self.pointed.offer else ""


def why_not_load(choice: ModelChoice) -> str:
    """Why a model can't be loaded or downloaded; "" if it can."""
    if choice.loaded:
        return f"{choice.name} is already loaded."
    if choice.preview.plan is None and not choice.offer:
        return f"{choice.name} can't be loaded; the preview says why."
    return ""


def fit_mark(choice: ModelChoice, now: Snapshot) -> Mark:
    plan, problem = choice.preview.plan, choice.preview.problem
    if choice.loaded and now.plan_status == "loading":
        return Mark("◌", "loading", WARN)
    if choice.loaded:
        return Mark("●", "loaded" + (f" on {plural(len(now.plan.stages), 'Mac')}" if now.plan else ""), GOOD)
    if choice.led_by:
        return Mark("●", f"led by {choice.led_by}", GOOD)
    if on_way := transfers_of(choice, now):
        if all(each.state == "paused" for each in on_way):
            return Mark("◌", "paused", WARN)
        what = "copying here" if on_way[0].mac == own_id(now) else "copying out"
        return Mark("◌", f"{what}, {left}" if (left := " ".join(left_words(left_s(on_way[0])))) else what, WARN)
    if choice.layers and not choice.path and not choice.offer:
        return Mark("○", "d copies it here", WARN)
    if plan is not None and choice.preview.missing_on:
        return Mark("↓", f"copies {gigabytes_short(choice.preview.missing_bytes)} GB", WARN)
    if plan is not None:
        macs = len(plan.stages)
        return Mark("✓", "1 Mac, no hops" if macs == 1 and not choice.offer else plural(macs, "Mac"), GOOD)
    if choice.preview.draft is not None and (missing := missing_bytes(choice.preview.draft)) > 0:
        size = f"{gigabytes_short(missing)} GB"
        return Mark("✗", f"{size} short" if choice.offer else f"needs {size} more", BAD)
    if not choice.layers:
        return Mark("✗", "can't be used", BAD)
    return Mark("✗", problem.what if problem is not None else "doesn't fit", BAD)


def missing_bytes(draft: Plan) -> int:
    return sum(max(0, s.needed_bytes - s.budget_bytes) for s in draft.stages)


def head_content(width: int, *, known: bool = False) -> Content:
    cells = _cells("model", "size", "tok/s" if known else "on disk", "fit", width, known=known)
    return Content.styled("  " + cells, DIM)


def row_content(choice: ModelChoice, now: Snapshot, width: int) -> Content:
    mark = fit_mark(choice, now)
    size = f"{gigabytes_short(choice.total_bytes)} GB" if choice.total_bytes else "–"
    # the preview shows the repository's owner
    where = speed_words(choice) if choice.offer and not transfers_of(choice, now) else disk_words(choice, now)
    text = _cells(choice.name.rpartition("/")[2], size, where, mark.word, width, known=choice.offer is not None)
    return Content.assemble((mark.glyph + " ", mark.style), (text, DIM if mark.glyph in "✗○" else ""))


def speed_words(choice: ModelChoice) -> str:
    forecast = choice.preview.forecast
    return f"≈ {rate(forecast.tokens_per_s)}" if forecast and choice.preview.plan else "–"


def _cells(name: str, size: str, disk: str, verdict: str, width: int, *, known: bool) -> str:
    # two cells are for the mark and one stays free at the end
    middle = 7 if known else 10
    room = width - 2 - 8 - 2 - middle - 1
    last = min(13 if known else 34, max(18, room // 2), max(0, room - 8))
    return fit(name, room - last) + fit(size, 8, right=True) + "  " + fit(disk, middle) + fit(verdict, last)


def arranged(
    choices: tuple[ModelChoice, ...], text: str, order: Order, *, fitting: bool = False
) -> tuple[ModelChoice, ...]:
    """Models whose name contains `text`, in `order`. Best fit: loaded models, then few Macs, then large models."""
    named = (c for c in choices if text.casefold() in c.name.casefold())
    wanted = [c for c in named if not fitting or c.loaded or c.preview.plan]
    match order:
        case "size":
            return tuple(sorted(wanted, key=lambda c: -c.total_bytes))
        case "name":
            return tuple(sorted(wanted, key=lambda c: c.name.casefold()))
        case _:  # models on the hub keep their order
            return tuple(sorted(wanted, key=lambda c: (4, 0, 0) if c.offer else _by_fit(c)))


def _by_fit(choice: ModelChoice) -> tuple[int, int, int]:
    plan = choice.preview.plan
    rank = 0 if choice.loaded else 3 if plan is None else 2 if choice.preview.missing_on else 1
    return rank, len(plan.stages) if plan is not None else 0, -choice.total_bytes
