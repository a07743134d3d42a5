"""The app of the demo, over simulated Macs."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from msgspec.structs import replace
from textual.binding import BindingType

from tui.app import MaclusterApp
from tui.client import NodeClient
from tui.control.actions import bindings
from tui.control.demo_cables import CableController, Cables
from tui.control.keymap import APP, DEMO, Action
from tui.control.preferences import Preferences


class DemoApp(MaclusterApp, inherit_bindings=False):
    """The app of the demo; `cables` are those of its simulated Macs."""

    ACTIONS: ClassVar[tuple[Action, ...]] = (*APP, *DEMO)
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(ACTIONS)]

    def __init__(
        self, client: NodeClient, cables: Cables, *, note: str, folder: Path, preferences: Preferences
    ) -> None:
        super().__init__(client, note=note, folder=folder, preferences=preferences)
        self._cables = CableController(self, cables)

    def prepare(self, words: str) -> None:
        """Show what the demo is preparing; "" for nothing."""
        self.set_state(replace(self.state, preparing=words))

    def why_not(self, run: str) -> str:
        return self._cables.why_not(run) or super().why_not(run)

    def action_pull_cable(self) -> None:
        self.in_background(self._cables.pull, group="cables")

    def action_plug_cable(self) -> None:
        self.in_background(self._cables.plug, group="cables")
