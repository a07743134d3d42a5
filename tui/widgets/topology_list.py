"""The list of topologies."""

from __future__ import annotations

from collections.abc import Mapping

from textual.content import Content

from core.events import Topology
from core.requests.plans import PlanPreview
from tui.control.keymap import TOPOLOGY_LIST
from tui.state.load_options import TOPOLOGIES
from tui.widgets.item_list import ItemList
from tui.widgets.topology_text import Now, row_content


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
