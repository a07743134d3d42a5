"""The model picker: models on the linked Macs' disks, how each fits, and load options."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
from textual.app import ComposeResult
from textual.containers import Container, Horizontal, Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static

from core.requests.plans import LoadRequest, ModelChoice
from tui.control.keymap import MODELS
from tui.screens.base import NodeScreen, Sources
from tui.screens.split import SplitScreen
from tui.screens.transfers import TransferDialogs
from tui.state import load_options
from tui.state.disks import comes_here, copies_of, with_coming
from tui.state.format import DIM, gigabytes_short, plural
from tui.state.plan_words import context_length
from tui.state.state import UiState
from tui.widgets.fit_preview import FitPreview
from tui.widgets.model_list import ORDERS, ModelList, arranged, head_content, why_not_load
from tui.widgets.text_view import TextView, title_line

_OF_A_MODEL = ("edit_split", "context", "longer", "topology", "parallelism", "bits", "wire", "balance")
_OF_TRANSFERS = ("stop_transfer", "pause_transfer", "limit_transfer")
_LETTERS = ("filter", "sort", "download", "known", "fitting", *_OF_TRANSFERS, *_OF_A_MODEL)


class ModelsScreen(NodeScreen):
    """A list of models and a preview of the selected one."""

    TITLE = "Choose a model"
    AUTO_FOCUS = "ModelList"
    ACTIONS = MODELS

    HELP = """Choose what to load over the paired Macs."""

    def __init__(self, sources: Sources) -> None:
        super().__init__(sources)
        self._catalog, self._models = sources.catalog, sources.models
        self._order = 0
        self._fitting = False
        self._loads_here = False
        self._dialogs = TransferDialogs(self, sources)
        self._filter = Input(id="filter", compact=True, placeholder="part of a name")
        self._filter_line = Horizontal(Static("/ "), self._filter, id="filter-line")
        self._head = TextView(id="head")
        self._box = Vertical(id="list-box", classes="pane")
        self.list = ModelList()
        self.preview = FitPreview()

    def parts(self) -> ComposeResult:
        with Container(id="parts"):
            with self._box:
                yield self._filter_line
                yield self._head
                yield self.list
            yield self.preview

    def on_mount(self) -> None:
        self._filter_line.display = False
        self._catalog.wants_known = False

    def laid_out(self) -> None:
        super().laid_out()
        self.show_choices()

    def show(self, state: UiState) -> None:
        """Draw progress. When a load that was started here is done, go back to the chat."""
        before, now = self._state.snapshot, state.snapshot
        super().show(state)
        if before.transfers != now.transfers or before.peers != now.peers:
            self.show_choices()
        if self._loads_here and now.plan_status == "ready" and self.is_current:
            self.dismiss()
        elif now.plan_status == "broken" and before.plan_status != "broken":
            self._loads_here = False

    def _draw(self, width: int) -> None:
        self._title.draw(title_content(self._state, width))
        self.preview.show(self._state)

    def show_choices(self) -> None:
        now, known = self._state.snapshot, self._catalog.choices
        is_of_hub = known is not None and (self._catalog.wants_known or not known)
        choices = with_coming((self._catalog.known if is_of_hub else known) or (), now)
        shown = arranged(choices, self._filter.value, ORDERS[self._order], fitting=self._fitting)
        self._head.draw(head_content(self.list.scrollable_content_region.width, known=is_of_hub))
        self.list.show(shown, now)
        self._box.border_title = Content("Models on the hub" if is_of_hub else "Models")
        counted = f"{len(shown)} of {len(choices)}" if len(shown) < len(choices) else plural(len(choices), "model")
        fitting = " · that fit" if self._fitting else ""
        asking = "loading…" if self._state.attached else "not running"
        words = asking if known is None else f"{counted}{fitting} · by {ORDERS[self._order]}"
        self._box.border_subtitle = Content(words)
        self._point()

    def _point(self) -> None:
        choice = self.list.pointed
        self.preview.point(choice, self._catalog.options(choice) if choice else None)
        self.refresh_bindings()  # the enabled actions may have changed

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        choice = self.list.pointed
        self._point()
        if choice is not None and choice.path and choice.preview.plan is not None and choice.preview.cuts is None:
            self._models.examine(load_options.as_preview(self._catalog.options(choice)))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        choice = self.list.pointed
        if choice is None:
            return
        if why := why_not_load(choice):
            self.app.notify(why)
        elif choice.offer:
            self.action_download()
        elif not self._catalog.is_planned(choice):
            self.app.notify("Still planning your choice. Press Enter when the preview shows it.")
            self._models.examine(load_options.as_preview(self._catalog.options(choice)), at_once=True)
        else:
            self._loads_here = True
            self._models.load(self._catalog.options(choice))

    def on_input_changed(self, event: Input.Changed) -> None:
        self.show_choices()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.list.focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return not (self._filter.has_focus and action in _LETTERS)

    def why_not(self, run: str) -> str:
        name = run.partition("(")[0]
        if name in _OF_A_MODEL:
            return self._why_not_otherwise(name)
        if name == "download" and comes_here(self._state.snapshot):
            choice = self.list.pointed
            copies = copies_of(choice, self._state.snapshot) if choice else None
            return "" if copies else "A download to this Mac is already running (x stops it)."
        if name in _OF_TRANSFERS and not self._state.snapshot.transfers:
            return "Nothing is being downloaded or copied."
        return ""

    def _why_not_otherwise(self, name: str) -> str:
        choice = self._plannable
        if choice is None:
            return "Download the model first."
        if choice.loaded:
            if name == "topology":
                return ""
            is_split = name == "edit_split"
            return "F4 edits the split of a loaded model." if is_split else "Unload the model first (u) to change this."
        is_whole = self._catalog.options(choice).kv_bits is None
        if name == "bits" and is_whole and choice.preview.plan is not None and choice.preview.cuts is None:
            return "The model is still being examined. Try again in a moment."
        if name == "bits" and is_whole and choice.preview.whole_kv:
            return f"This model's cache can't be compressed: {choice.preview.whole_kv}."
        return ""

    def action_filter(self) -> None:
        self._filter_line.display = True
        self._filter.focus()

    def action_sort(self) -> None:
        self._order = (self._order + 1) % len(ORDERS)
        self.show_choices()

    def action_known(self) -> None:
        self._catalog.wants_known = not self._catalog.wants_known
        self._models.find()
        self.show_choices()

    def action_fitting(self) -> None:
        self._fitting = not self._fitting
        self.show_choices()

    async def action_topology(self) -> None:
        if (choice := self._plannable) and choice.loaded:
            await self.run_action("app.open('topology')")
        else:
            self._change(load_options.with_topology)

    def action_parallelism(self) -> None:
        self._change(lambda request, _: load_options.with_parallelism(request))

    def action_bits(self) -> None:
        self._change(load_options.with_bits)

    def action_wire(self) -> None:
        self._change(lambda request, _: load_options.with_wire(request))

    def action_balance(self) -> None:
        self._change(lambda request, _: load_options.with_balance(request))

    def action_longer(self, step: int) -> None:
        self._change(partial(load_options.with_context, step=step))

    def action_context(self) -> None:
        if (choice := self._plannable) is None:
            return
        request = self._catalog.options(choice)
        now = load_options.context_of(request, choice)
        others = [c for c in load_options.contexts(choice) if c != now]
        body = "Tokens of prompt and answers kept in memory. The preview shows how much memory each Mac needs."
        answers = (f"{context_length(now)} (current)", *(context_length(c) for c in others))
        title, replaced = f"Context length of {choice.name}", msgspec.structs.replace
        self.ask(title, body, answers, lambda n: self._set_options(replaced(request, context=others[n - 1])))

    def action_edit_split(self) -> None:
        if choice := self._plannable:
            self.app.push_screen(SplitScreen(self._sources, self._catalog.named(self._catalog.options(choice))))

    def action_download(self) -> None:
        self._dialogs.bring(self.list.pointed, self._state.snapshot)

    def action_pause_transfer(self) -> None:
        self._dialogs.pause(self._state.snapshot)

    def action_limit_transfer(self) -> None:
        self._dialogs.limit(self._state.snapshot)

    def action_stop_transfer(self) -> None:
        self._dialogs.stop(self._state.snapshot, "Keep going")

    async def action_back(self) -> None:
        if self._state.snapshot.plan_status == "loading":
            self._loads_here = False
            await self.run_action("app.unload")
        elif self._filter_line.display:
            self._filter.value = ""
            self._filter_line.display = False
            self.list.focus()
        elif self._state.snapshot.transfers:
            self._dialogs.stop(self._state.snapshot, "Keep going and leave", lambda: self.dismiss())
        else:
            self.dismiss()

    @property
    def _plannable(self) -> ModelChoice | None:
        choice = self.list.pointed
        return choice if choice is not None and choice.path and choice.layers else None

    def _change(self, change: Callable[[LoadRequest, ModelChoice], LoadRequest]) -> None:
        if choice := self._plannable:
            self._set_options(change(self._catalog.options(choice), choice))

    def _set_options(self, request: LoadRequest) -> None:
        self._catalog.set_options(request)
        self._point()
        self._models.examine(load_options.as_preview(request), at_once=True)


def title_content(state: UiState, width: int) -> Content:
    peers = [p for p in state.snapshot.peers if p.trust == "paired" or p.is_self]
    budget = sum(p.budget_bytes for p in peers)
    free = budget - sum(min(p.used_bytes, p.budget_bytes) for p in peers)
    right = f"{plural(len(peers), 'Mac')} · {gigabytes_short(budget)} GB budget · {gigabytes_short(free)} GB free"
    return title_line("Choose a model", right, width, style=DIM)
