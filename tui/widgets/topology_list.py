"""The list of topologies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, get_args

from textual.binding import BindingType
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from core.events import Topology
from core.requests import PlanPreview
from tui.control.bindings import bindings
from tui.control.keymap import TOPOLOGY_LIST
from tui.widgets.topology_text import Now, row_content

TOPOLOGIES: Final[tuple[Topology, ...]] = get_args(Topology)


class TopologyList(OptionList):
    """A line a topology; the cursor decides which one the details are about."""

    HELP = """Who embeds the words, and who has the output that chooses the next one: that decides which Mac can read \
a conversation. Every Mac of a ring gets hidden states of its layers; a token id is a piece of text, and logits say \
what the answer may be.

≈ is a guess by the chip's name, without it the rate comes from past answers on these Macs."""

    ACTIONS = TOPOLOGY_LIST
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(TOPOLOGY_LIST)]

    def __init__(self) -> None:
        super().__init__(*(Option("") for _ in TOPOLOGIES), id="topologies", markup=False)
        self.border_title = Content("Topologies")  # its frame is the box around it; help is headed by this
        self._rows: list[Content] = []

    @property
    def pointed(self) -> Topology:
        """The topology under the cursor."""
        return TOPOLOGIES[self.highlighted or 0]

    def point(self, topology: Topology) -> None:
        """Move the cursor there."""
        self.highlighted = TOPOLOGIES.index(topology)

    def show(self, previews: Mapping[Topology, PlanPreview], now: Now) -> None:
        """What is known of each."""
        width = self.scrollable_content_region.width
        if width <= 0:
            return
        rows = [row_content(each, previews.get(each), now, width) for each in TOPOLOGIES]
        for at, row in enumerate(rows):
            if at >= len(self._rows) or not row.is_same(self._rows[at]):
                self.replace_option_prompt_at_index(at, row)
        self._rows = rows
