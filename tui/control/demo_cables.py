"""The demo's keys: unplug a simulated Mac and plug it in again."""

from __future__ import annotations

from typing import Final, Protocol

from tui.control.app_interface import AppInterface
from tui.state.state import UiState

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


def next_one(state: UiState, pulled: tuple[str, ...]) -> str:
    """The Mac to unplug next: the last one of the ring that isn't the head; "" for none."""
    own = {peer.device_id for peer in state.snapshot.peers if peer.is_self}
    stages = state.snapshot.plan.stages if state.snapshot.plan is not None else ()
    names = [stage.peer for stage in stages if stage.device_id not in own]
    return next((name for name in reversed(names) if name not in pulled), "")


class CableController:
    """Unplugs and plugs in simulated Macs, on keys."""

    def __init__(self, app: AppInterface, cables: Cables) -> None:
        self._app, self._cables = app, cables

    def why_not(self, run: str) -> str:
        if run == "pull_cable":
            return "" if next_one(self._app.state, self._cables.pulled) else NONE_LEFT
        return "" if run != "plug_cable" or self._cables.pulled else ALL_IN

    async def pull(self) -> None:
        if name := next_one(self._app.state, self._cables.pulled):
            await self._cables.pull(name)
            self._app.notify(f"{name} is unplugged. Ctrl+G plugs it back in.")

    async def plug(self) -> None:
        for name in self._cables.pulled[-1:]:
            await self._cables.plug(name)
            self._app.notify(f"{name} is plugged in again. The next load can use it.")
