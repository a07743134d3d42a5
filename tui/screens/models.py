"""The model picker: the models of this Mac, and how each would fit."""

from __future__ import annotations

from typing import ClassVar, Final, get_args

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Horizontal, Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static

from core.events import Topology
from core.requests import LoadRequest, ModelChoice, PreviewRequest
from core.settings import DEFAULT_CONTEXT
from tui.actions import bindings
from tui.format import DIM, between, gigabytes_short, plural
from tui.registry import MODELS
from tui.screens.base import SizedScreen
from tui.state import UiState
from tui.widgets.fit_preview import FitPreview
from tui.widgets.key_bar import KeyBar
from tui.widgets.messages import ModelChosen, ModelPointed, Noted
from tui.widgets.model_list import ORDERS, ModelList, arranged, head_content
from tui.widgets.too_small import TooSmall

TOPOLOGIES: Final[tuple[Topology, ...]] = get_args(Topology)


class ModelsScreen(SizedScreen):
    """A list and a preview, side by side or one above the other."""

    CSS_PATH = "models.tcss"
    AUTO_FOCUS = "ModelList"
    ACTIONS = MODELS
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(MODELS)]

    HELP = """Choose what to load over the paired Macs."""

    def __init__(self, state: UiState, choices: tuple[ModelChoice, ...] | None) -> None:
        super().__init__()
        self._state = state
        self._choices = choices
        self._order = 0
        self._topologies: dict[str, Topology] = {}  # by the name of the model for which it was chosen
        self._loads_here = False
        self._title = Static(id="title", markup=False)
        self._filter = Input(id="filter", compact=True, placeholder="part of a name")
        self._filter_line = Horizontal(Static("/ "), self._filter, id="filter-line")
        self._head = Static(id="head", markup=False)
        self._box = Vertical(id="list-box", classes="pane")
        self.list = ModelList()
        self.preview = FitPreview()

    def compose(self) -> ComposeResult:
        """Title, the two halves, keys."""
        yield self._title
        with Container(id="parts"):
            with self._box:
                yield self._filter_line
                yield self._head
                yield self.list
            yield self.preview
        yield KeyBar()
        yield TooSmall()

    def on_mount(self) -> None:
        """The filter is hidden until it is asked for."""
        self._filter_line.display = False

    def on_descendant_focus(self) -> None:
        """The frame of the list stands for the list and its filter."""
        self._box.set_class(self.focused in (self.list, self._filter), "lit")

    def laid_out(self) -> None:
        """Draw for the new sizes."""
        self.show(self._state)
        self._arrange()

    def set_choices(self, choices: tuple[ModelChoice, ...]) -> None:
        """What the node says is there."""
        self._choices = choices
        self._arrange()

    def show(self, state: UiState) -> None:
        """Loading goes on, or a Mac changed. A load that was started here leads back to the chat."""
        before, self._state = self._state.snapshot.plan_status, state
        self._title.update(title_content(state, self._title.size.width))
        self.preview.show(state)
        if self._loads_here and state.snapshot.plan_status == "ready" and self.is_current:
            self.dismiss()
        elif state.snapshot.plan_status == "broken" and before != "broken":
            self._loads_here = False

    def _arrange(self) -> None:
        shown = arranged(self._choices or (), self._filter.value, ORDERS[self._order])
        self._head.update(head_content(self.list.scrollable_content_region.width))
        self.list.show(shown)
        whole = len(self._choices or ())
        self._box.border_title = Content("Models")
        counted = f"{len(shown)} of {whole}" if self._filter.value else plural(whole, "model")
        words = "asking the node" if self._choices is None else f"{counted} · by {ORDERS[self._order]}"
        self._box.border_subtitle = Content(words)
        self.preview.point(self.list.pointed)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """The preview follows the cursor, and becomes exact for a model on which it rests."""
        choice = self.list.pointed
        self.preview.point(choice)
        if choice is not None and choice.preview.plan is not None and choice.preview.cuts is None:
            self.post_message(ModelPointed(PreviewRequest(model=choice.name, context=choice.preview.plan.context)))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Load it, unless that cannot work."""
        choice = self.list.pointed
        if choice is None:
            return
        if choice.loaded:
            self.post_message(Noted(f"{choice.name} is loaded already."))
        elif choice.preview.plan is None:
            self.post_message(Noted(f"{choice.name} cannot be loaded now; the preview says why."))
        else:
            self._loads_here = True
            chosen = self._topologies.get(choice.name)
            # the node plans the list anew without what was chosen here; what is loaded is what the preview shows
            topology = chosen if chosen == choice.preview.plan.topology else None
            self.post_message(ModelChosen(LoadRequest(model=choice.name, topology=topology)))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while typing."""
        self._arrange()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Back to the list, still filtered."""
        self.list.focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Letters are text while the filter is written."""
        return not (self._filter.has_focus and action in ("filter", "sort", "topology"))

    def action_filter(self) -> None:
        """Show the filter and go there."""
        self._filter_line.display = True
        self._filter.focus()

    def action_sort(self) -> None:
        """The next order."""
        self._order = (self._order + 1) % len(ORDERS)
        self._arrange()

    def action_topology(self) -> None:
        """Preview the model under the cursor in the topology after the one that is shown or was asked for last."""
        choice = self.list.pointed
        if choice is None or not choice.layers:
            return
        split = choice.preview.plan or choice.preview.draft
        last = self._topologies.get(choice.name) or (split.topology if split else TOPOLOGIES[-1])
        wanted = self._topologies[choice.name] = TOPOLOGIES[(TOPOLOGIES.index(last) + 1) % len(TOPOLOGIES)]
        context = split.context if split else min(DEFAULT_CONTEXT, choice.context_max)
        self.post_message(ModelPointed(PreviewRequest(model=choice.name, context=context, topology=wanted)))

    def action_leave(self) -> None:
        """To the dashboard; what is being loaded goes on."""
        self.dismiss()

    async def action_back(self) -> None:
        """One step back: cancel the load, clear the filter, leave."""
        if self._state.snapshot.plan_status == "loading":
            self._loads_here = False
            await self.run_action("app.unload")
        elif self._filter_line.display:
            self._filter.value = ""
            self._filter_line.display = False
            self.list.focus()
        else:
            self.dismiss()


def title_content(state: UiState, width: int) -> Content:
    """What there is to divide, in `width` cells."""
    peers = [p for p in state.snapshot.peers if p.trust in ("paired", "hardware-bound") or p.is_self]
    budget = sum(p.budget_bytes for p in peers)
    free = budget - sum(min(p.used_bytes, p.budget_bytes) for p in peers)
    right = f"{plural(len(peers), 'Mac')} · {gigabytes_short(budget)} GB budget · {gigabytes_short(free)} GB free "
    line = between(" Choose a model", right, width)
    return Content(line).stylize("bold", 0, 15).stylize(DIM, max(0, len(line) - len(right)), len(line))
