"""Quits the program: asks first if something would be lost, and saves the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from tui.control.app_interface import AppInterface
from tui.control.conversation_archive import ConversationArchive
from tui.state.format import plural
from tui.state.state import UiState

# owner of the node: a demo (ends with it), this window (ends with it), or a service (continues)
Owner = Literal["demo", "window", "service"]

_WORDS: Final[dict[Owner, str]] = {
    "demo": "Ctrl+Q quits. The simulated Macs and this conversation end with the demo.",
    "window": "Ctrl+Q quits and stops macluster on this Mac.",
    "service": "Ctrl+Q quits. macluster and its model keep running on this Mac.",
}
_AGAIN: Final = "\n\nPress Ctrl+Q again to quit."


def effect(state: UiState, owner: Owner) -> str:
    """Effects of quitting, such as an answer that would be cut off; "" for none."""
    now = state.snapshot
    if owner == "service":
        lost = "The answer will finish, but the rest won't be saved in this chat."
        return lost + _AGAIN if state.answer is not None else ""
    if now.plan is None or now.plan_status not in ("ready", "loading"):
        return ""
    if owner == "demo":
        return "The demo ends. Its simulated Macs, the model and this conversation are gone then." + _AGAIN
    own = {peer.device_id for peer in now.peers if peer.is_self}
    others = [stage.peer for stage in now.plan.stages if stage.device_id not in own]
    names = ", ".join(others[:3]) + (" …" if len(others) > 3 else "")
    where = f" on {plural(len(others), 'other Mac')} ({names})" if others else ""
    lines = [f"Quitting also stops macluster on this Mac and unloads {now.plan.model}{where}."]
    if now.running:
        lines.append("The answer stops; you can continue it later.")
    lines.append("\nTo keep it running, use `macluster node`. Press Ctrl+Q again to quit.")
    return " ".join(lines)


def words(state: UiState, owner: Owner) -> str:
    return _WORDS[owner] if state.attached else "Ctrl+Q quits."


class Quitting:
    """Quits `app`; asks first if something is lost."""

    def __init__(self, app: AppInterface, conversations: ConversationArchive, owner: Callable[[], Owner]) -> None:
        self._app = app
        self._conversations = conversations
        self._owner = owner
        self._is_asked = False

    async def leave(self) -> None:
        """Ask if needed, then quit. Quits without asking if the question is already open."""
        text = effect(self._app.state, self._owner())
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
