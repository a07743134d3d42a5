"""The split editor: move boundaries between Macs, see the effect at once, and load the split."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.events import Click
from textual.worker import WorkType

from core.errors import Problem
from core.events import Plan
from core.requests.plans import LoadRequest, PlanPreview
from tui.control.keymap import SPLIT
from tui.screens.base import NodeScreen, Sources, titled
from tui.state import boundaries
from tui.state.boundaries import Boundaries, cuts_of, divided_as, options_of, spans
from tui.state.format import gigabytes
from tui.state.load_options import in_topology
from tui.state.plan_words import is_of_ranks
from tui.state.seat import nothing_words
from tui.state.split_effects import Effect, effect, split_of
from tui.widgets import split_text
from tui.widgets.banner import problem_content
from tui.widgets.text_view import TextView

# delay after the last key before the node plans
REST_S: Final = 0.1
_NOTHING = "No model is loaded.\n\nCtrl+O chooses one; e there edits its split before loading."
_ASKING = "Checking where this model can be divided. Esc leaves."
_OTHER_MACS = Problem(kind="PlanError", what="The Macs changed meanwhile.", fix="Press Esc, then F4 to start again.")
_EQUAL_PARTS = Problem(
    kind="PlanError",
    what="In this topology every Mac holds part of every layer, so there is nothing to divide.",
    fix="Choose a topology other than tensor first (T).",
)
# equal in plans that differ only in their layers
_ALIKE = ("fingerprint", "topology", "context", "kv_bits", "rows", "wire")


class SplitScreen(NodeScreen):
    """The boundaries and their effect. Starts with the loaded split if it fits `request`, else the balanced one.

    `request` is the loaded model's unless it is given.
    """

    TITLE = "Edit split"
    ACTIONS = SPLIT

    HELP = """Which Mac holds which layers. The arrow keys move the selected boundary, Tab selects the next one. The \
effect on memory and speed is shown at once and confirmed a moment later. Nothing changes until you press Enter.

For one user, a token takes the sum of every Mac's compute and every hop. Moving a layer to a faster Mac helps; adding \
Macs doesn't."""

    def __init__(self, sources: Sources, request: LoadRequest | None = None) -> None:
        super().__init__(sources)
        self._request = request or _what_is_loaded(sources)
        self._plan: Plan | None = None  # the Macs in order
        self._balanced: Plan | None = None
        self._now: Boundaries | None = None
        self._known: PlanPreview | None = None
        self._problem: Problem | None = None
        self._was: float | None = None
        self._bar = titled(TextView(id="boundaries"), "Boundaries")
        self._effect = TextView()
        self._box = titled(VerticalScroll(self._effect, id="effect", can_focus=False), "Effect")

    def parts(self) -> ComposeResult:
        yield Vertical(self._bar, self._box, id="parts")

    def on_mount(self) -> None:
        if self._request:
            self._ask(self._begin)

    def on_click(self, event: Click) -> None:
        if event.widget is self._bar and self._now:
            width = self._bar.content_region.width
            layer = self._now.layers * (event.screen_x - self._bar.content_region.x) // max(1, width)
            self._step(lambda now: boundaries.chosen_near(now, layer))

    def _ask(self, call: WorkType[None]) -> None:
        # the coroutine is made when the work starts: replaced work leaves no unused coroutine
        self.run_worker(call, group="split", exclusive=True, exit_on_error=False)

    async def _begin(self) -> None:
        preview = await self._preview(())
        balanced = split_of(preview)
        if balanced is not None and is_of_ranks(balanced):
            balanced, self._problem = None, _EQUAL_PARTS
        if balanced is None:
            self.redraw()
            return
        loaded = self._as_loaded(balanced)
        begun = loaded or balanced
        self._plan, self._balanced, self._known = begun, balanced, preview
        self._now = Boundaries(layers=begun.layers, cuts=cuts_of(begun), legal=preview.cuts)
        if cuts_of(begun) != cuts_of(balanced) or _macs(begun) != _macs(balanced):
            await self._confirm(self._now.cuts)
        means = self._means
        self._was = means.tokens_per_s if means else None
        self.redraw()

    def _as_loaded(self, balanced: Plan) -> Plan | None:
        """The loaded plan with current budgets, if it differs from `balanced` only in who owns which layers."""
        plan = self._state.snapshot.plan
        if plan is None or any(getattr(plan, f) != getattr(balanced, f) for f in _ALIKE):
            return None
        budgets = {stage.device_id: stage.budget_bytes for stage in balanced.stages}
        if set(_macs(plan)) != set(budgets):
            return None
        stages = tuple(msgspec.structs.replace(s, budget_bytes=budgets[s.device_id]) for s in plan.stages)
        return msgspec.structs.replace(plan, stages=stages)

    async def _confirm_at_rest(self, cuts: tuple[int, ...]) -> None:
        await asyncio.sleep(REST_S)
        await self._confirm(cuts)
        self.redraw()

    async def _confirm(self, cuts: tuple[int, ...]) -> None:
        assert self._plan
        preview = await self._preview(spans(self._plan, cuts))
        split = split_of(preview)
        if split and _macs(split) == _macs(self._plan):
            self._known = preview
        else:
            self._problem = preview.problem or _OTHER_MACS

    async def _preview(self, layers: tuple[str, ...]) -> PlanPreview:
        assert self._request
        preview = await self.planned(msgspec.structs.replace(self._request, layers=layers))
        self._problem = None if split_of(preview) else preview.problem
        return preview

    @property
    def _means(self) -> Effect | None:
        return effect(self._known, self._now.cuts) if self._known and self._now else None

    @property
    def _loaded(self) -> split_text.Loaded:
        now, same = self._state.snapshot, self._as_loaded(self._balanced) if self._balanced else None
        runs = now.plan_status != "broken" and same and self._plan and _macs(same) == _macs(self._plan)
        cuts = cuts_of(same) if same and runs else None
        return split_text.Loaded(cuts, now.plan.model if now.plan else "", len(now.running))

    def _step(self, change: Callable[[Boundaries], Boundaries]) -> None:
        if self._now is None:
            return
        before, self._now = self._now, change(self._now)
        if self._now.cuts != before.cuts:
            self._problem = None
            self._ask(partial(self._confirm_at_rest, self._now.cuts))
        self.redraw()

    def _draw(self, width: int) -> None:
        plan, now = self._plan, self._now
        if plan is None or now is None:
            nothing = nothing_words(self._state.snapshot) if self._state.snapshot.host else _NOTHING
            above = Content(nothing if self._request is None else "" if self._problem else _ASKING)
            below = problem_content(self._problem) if self._problem else Content("")
        else:
            above = split_text.bar_content(now, [owner.peer for owner in plan.owners], self._bar.content_region.width)
            below = self._effect_content(plan, now)
        self._title.draw(split_text.title_content(plan, self._progress(), width))
        self._bar.draw(above)
        self._effect.draw(below)

    def _effect_content(self, plan: Plan, now: Boundaries) -> Content:
        lines = [problem_content(self._problem)] if self._problem else []
        if means := self._means:
            width = self._box.scrollable_content_region.width
            parts = (split_text.effect_content(means, self._was, width), split_text.disks_content(means, width))
            lines += filter(None, parts)
        lines.append(split_text.applying_content(plan, now.cuts, self._loaded))
        if self._known and self._known.forecast:
            lines += [Content(""), split_text.forecast_content(self._known.forecast)]
        return Content("\n").join(lines)

    def _progress(self) -> str:
        if self._now is None or self._now.cuts == self._loaded.cuts:
            return "unchanged"
        return "not applied" if self._now.past else "balanced, not applied"

    def action_move(self, by: int) -> None:
        self._step(lambda now: boundaries.moved(now, by))

    def action_boundary(self) -> None:
        self._step(boundaries.chosen_next)

    def action_balance(self) -> None:
        if self._plan and self._balanced:
            cuts = divided_as(self._balanced, self._plan)
            self._step(lambda now: boundaries.replaced(now, cuts, "Balanced by the Macs' memory."))

    def action_undo(self) -> None:
        self._step(boundaries.undone)

    def action_scroll(self, by: int) -> None:
        self._box.scroll_relative(y=by, animate=False)

    def action_apply(self) -> None:
        plan, now, means, loaded = self._plan, self._now, self._means, self._loaded
        if plan is None or now is None:
            self.app.notify("There is nothing to apply yet.")
        elif now.cuts == loaded.cuts:
            self.app.notify("This split is already loaded.")
        elif self._state.snapshot.plan_status == "loading":
            self.app.notify("Wait until the model has loaded.")
        elif means and not means.fits:
            short = min(means.shares, key=lambda share: share.free_bytes)
            self.app.notify(f"This doesn't fit: {short.peer} needs {gigabytes(-short.free_bytes)} GB more.")
        elif loaded.model:
            effect = f"This {split_text.applying_words(plan, now.cuts, loaded)}."
            self.ask("Apply this split?", effect, ("Cancel", "Apply"), lambda _: self._apply(plan, now.cuts))
        else:
            self._apply(plan, now.cuts)

    def _apply(self, plan: Plan, cuts: tuple[int, ...]) -> None:
        assert self._request
        self._sources.models.load(msgspec.structs.replace(self._request, layers=spans(plan, cuts)))
        self.dismiss()


def _what_is_loaded(sources: Sources) -> LoadRequest | None:
    now = sources.state.snapshot
    if now.plan is None:
        return None
    return sources.catalog.named(in_topology(options_of(now.plan, now.peers), now.plan.topology))


def _macs(plan: Plan) -> list[str]:
    return [owner.device_id for owner in plan.owners]
