"""Leaving the program: what it takes from other Macs, the question about it, and what is saved before.

Only a program that started the node ends it. The simulated Macs of the demo end with it anyway, so it never asks.
"""

from __future__ import annotations

from collections.abc import Callable

from tui.control.conversation_archive import ConversationArchive
from tui.control.interface import AppInterface
from tui.state.format import plural
from tui.state.state import UiState


def effect(state: UiState) -> str:
    """What the end of this Mac's node does to others; "" if nothing."""
    now = state.snapshot
    own = {peer.device_id for peer in now.peers if peer.is_self}
    others = [stage.peer for stage in now.plan.stages if stage.device_id not in own] if now.plan else []
    if not others or now.plan is None or now.plan_status not in ("ready", "loading"):
        return ""
    names = ", ".join(others[:3]) + (" …" if len(others) > 3 else "")
    lines = [
        f"The node of this Mac was started by this window and ends with it. {now.plan.model} is then unloaded on "
        f"{plural(len(others), 'other Mac')} ({names})."
    ]
    if now.running:
        lines.append("What is being written stops there; it is kept and can be continued.")
    lines.append("\n`macluster node` in another window keeps a model loaded. Ctrl+Q again quits.")
    return " ".join(lines)


class Quitting:
    """Ends `app`; asks first where that `ends_node()` and so takes a model from other Macs."""

    def __init__(self, app: AppInterface, conversations: ConversationArchive, *, ends_node: Callable[[], bool]) -> None:
        self._app = app
        self._conversations = conversations
        self._ends_node = ends_node
        self._is_asked = False

    async def leave(self) -> None:
        """Ask if need be, then leave. Asked already, it is meant."""
        text = effect(self._app.state) if self._ends_node() else ""
        if text and not self._is_asked:
            self._is_asked = True
            try:
                answer = await self._app.choose("Quit?", text, ("Stay", "Quit"))
            finally:
                self._is_asked = False
            if not answer:
                return
        await self._app.break_off()
        await self._conversations.settle()
        self._app.exit()
