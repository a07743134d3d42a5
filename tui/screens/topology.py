"""The topology chooser: which Mac embeds and samples, what each Mac sees, and the speed."""

from __future__ import annotations

from collections.abc import Mapping

from textual.app import ComposeResult
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import OptionList

from core.events import PlanStatus, Topology
from core.requests.plans import LoadRequest, PlanPreview
from tui.control.keymap import TOPOLOGY, TOPOLOGY_LIST
from tui.screens.base import NodeScreen, Sources, titled
from tui.state.boundaries import options_of
from tui.state.format import BAD, GOOD, WARN, Mark
from tui.state.load_options import TOPOLOGIES, in_topology
from tui.state.state import UiState
from tui.widgets.item_list import ItemList
from tui.widgets.text_view import TextView
from tui.widgets.topology_text import Now, loading_words, row_content, title_content, topology_content

_NOTHING = "No model fits these Macs.\n\nCtrl+O lists the models and says why each doesn't fit."
_ASKING = "Loading the list of models. Esc leaves."
_MARKS: dict[PlanStatus, Mark] = {
    "ready": Mark("●", "loaded", GOOD),
    "loading": Mark("◌", "loading", WARN),
    "broken": Mark("✗", "broken", BAD),
}


class TopologyList(ItemList[Topology]):
    """One line per topology."""

    HELP = """Which Macs can read the conversation. Every Mac of a ring gets the hidden states of its layers. A token \
id is a piece of text, and logits show what the answer may be. In tensor, every Mac has part of every layer and gets \
the token ids.

≈ is estimated from the chips; without it, the rate comes from past answers on these Macs."""

    ACTIONS = TOPOLOGY_LIST

    def __init__(self) -> None:
        super().__init__(id="topologies", items=TOPOLOGIES)
        self.border_title = Content("Topologies")  # title of its help; its frame is the box around it
        self._previews: Mapping[Topology, PlanPreview] = {}
        self._now: Now | None = None

    @property
    def pointed(self) -> Topology:
        return super().pointed or TOPOLOGIES[0]

    def point(self, topology: Topology) -> None:
        self.highlighted = TOPOLOGIES.index(topology)

    def show(self, previews: Mapping[Topology, PlanPreview], now: Now) -> None:
        self._previews, self._now = previews, now
        self.show_items(TOPOLOGIES)

    def why_not(self, run: str) -> str:
        now, topology = self._now, self.pointed
        if run != "select" or now is None:
            return ""
        if now.plan and now.plan.topology == topology:
            return f"{topology} is already {now.mark.word}."
        if now.plan and now.mark.word == "loading":
            return "A model is being loaded."
        preview = self._previews.get(topology)
        if preview is None:
            return "This topology isn't planned yet."
        return "" if preview.plan else f"It can't be loaded as {topology}; the text next to it says why."

    def key_of(self, item: Topology) -> str:
        return item

    def rows_of(self, items: tuple[Topology, ...], width: int) -> list[Content]:
        now, previews = self._now, self._previews
        return [row_content(each, previews.get(each), now, width) if now else Content("") for each in items]


class TopologyScreen(NodeScreen):
    """The topologies, planned one by one, and details of the selected one. Nothing is loaded until Enter."""

    TITLE = "Topology"
    AUTO_FOCUS = "TopologyList"
    ACTIONS = TOPOLOGY

    HELP = """Which Macs can read the conversation."""

    def __init__(self, sources: Sources) -> None:
        super().__init__(sources)
        self._catalog = sources.catalog
        self._previews: dict[Topology, PlanPreview] = {}
        self._asked_for: tuple[object, ...] = ()
        self.list = TopologyList()
        self._box = titled(Vertical(self.list, id="topologies-box"), "Topologies")
        self._about = TextView()
        self._details = VerticalScroll(self._about, id="topology", classes="pane")

    def parts(self) -> ComposeResult:
        yield Container(self._box, self._details, id="parts")

    def on_mount(self) -> None:
        chosen = self._state.snapshot.plan or self._request
        self.list.point((chosen and chosen.topology) or TOPOLOGIES[0])
        self._look()

    def show(self, state: UiState) -> None:
        self._state = state
        self._look()
        self.redraw()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        self._details.scroll_home(animate=False)
        self.redraw()
        self.refresh_bindings()  # some can't be loaded

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        topology, request, now = self.list.pointed, self._request, self._now
        preview = self._previews.get(topology)
        if why := self.list.why_not("select"):
            self.app.notify(why)
        elif request is None or preview is None or preview.plan is None:
            return
        elif now.plan:
            effect, answers = loading_words(preview.plan, now.answers), ("Cancel", "Reload")
            self.ask(f"Reload as {topology}?", effect, answers, lambda _: self._load(request, topology))
        else:
            self._load(request, topology)

    @property
    def _request(self) -> LoadRequest | None:
        """The options of the loaded model, or of the first that fits; None if none does."""
        choices = self._catalog.choices or ()
        if plan := self._state.snapshot.plan:
            loaded = next((c for c in choices if c.asked and c.fingerprint == plan.fingerprint), None)
            return self._catalog.options(loaded) if loaded else options_of(plan, ())
        fits = next((c for c in choices if c.preview.plan), None)
        return self._catalog.options(fits) if fits else None

    @property
    def _now(self) -> Now:
        now = self._state.snapshot
        return Now(now.plan, _MARKS.get(now.plan_status, _MARKS["broken"]), len(now.running))

    def _look(self) -> None:
        request, now = self._request, self._state.snapshot
        macs = tuple((p.device_id, p.budget_bytes) for p in now.peers if p.state == "connected")
        answered = now.last_done.request_id if now.last_done else ""
        asked_for = (request, now.plan_status, macs, self._state.skipped, answered)
        if request and self._state.attached and asked_for != self._asked_for:
            self._asked_for = asked_for
            self.run_worker(self._ask(request), group="topology", exclusive=True, exit_on_error=False)

    async def _ask(self, request: LoadRequest) -> None:
        for topology in TOPOLOGIES:
            self._previews[topology] = await self.planned(in_topology(self._catalog.named(request), topology))
            self.redraw()

    def _load(self, request: LoadRequest, topology: Topology) -> None:
        self._sources.models.load(in_topology(request, topology))
        self.dismiss()

    def _draw(self, width: int) -> None:
        request, asked = self._request, len(self._previews)
        self._title.draw(title_content(request.model if request else "", asked, len(TOPOLOGIES), width))
        self.list.show(self._previews, self._now)
        self._details.border_title = Content(self.list.pointed if request else "")
        nothing = _ASKING if self._catalog.choices is None else _NOTHING
        self._about.draw(self._content() if request else Content(nothing))

    def _content(self) -> Content:
        topology, width = self.list.pointed, self._details.scrollable_content_region.width
        linked = [p.name for p in self._state.snapshot.peers if p.state == "connected"]
        return topology_content(topology, self._previews.get(topology), self._now, linked, width)
