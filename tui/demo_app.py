"""The app of the demo, with keys that unplug a simulated Mac and plug it in again."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Final, Protocol

from msgspec.structs import replace
from textual.binding import BindingType

from tui.app import MaclusterApp
from tui.client import NodeClient
from tui.control.actions import bindings
from tui.control.keymap import APP, DEMO, Action
from tui.control.preferences import Preferences

NONE_LEFT: Final = "No other simulated Mac holds layers."
ALL_IN: Final = "No Mac is unplugged."


class Cables(Protocol):
    """The owner of the simulated Macs."""

    @property
    def pulled(self) -> tuple[str, ...]:
        """Names of the unplugged Macs, the last one last."""

    async def pull(self, name: str) -> None:
        """Disconnect a Mac at once."""

    async def plug(self, name: str) -> None:
        """Connect it again. Raises a MaclusterError."""


class DemoApp(MaclusterApp, inherit_bindings=False):
    """The app of the demo; `cables` are those of its simulated Macs."""

    ACTIONS: ClassVar[tuple[Action, ...]] = (*APP, *DEMO)
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(ACTIONS)]

    def __init__(
        self, client: NodeClient, cables: Cables, *, note: str, folder: Path, preferences: Preferences
    ) -> None:
        super().__init__(client, note=note, folder=folder, preferences=preferences)
        self._cables = cables

    def prepare(self, words: str) -> None:
        """Show what the demo is preparing; "" for nothing."""
        self.set_state(replace(self.state, preparing=words))

    def why_not(self, run: str) -> str:
        if run == "pull_cable" and not self._next_to_pull():
            return NONE_LEFT
        if run == "plug_cable" and not self._cables.pulled:
            return ALL_IN
        return super().why_not(run)

    def action_pull_cable(self) -> None:
        self.in_background(self._pull, group="cables")

    def action_plug_cable(self) -> None:
        self.in_background(self._plug, group="cables")

    def _next_to_pull(self) -> str:
        """The last Mac of the ring that isn't the head; "" for none."""
        own = {peer.device_id for peer in self.state.snapshot.peers if peer.is_self}
        stages = self.state.snapshot.plan.stages if self.state.snapshot.plan is not None else ()
        names = [stage.peer for stage in stages if stage.device_id not in own]
        return next((name for name in reversed(names) if name not in self._cables.pulled), "")

    async def _pull(self) -> None:
        if name := self._next_to_pull():
            await self._cables.pull(name)
            self.notify(f"{name} is unplugged. Ctrl+G plugs it back in.")

    async def _plug(self) -> None:
        for name in self._cables.pulled[-1:]:
            await self._cables.plug(name)
            self.notify(f"{name} is plugged in again. The next load can use it.")
