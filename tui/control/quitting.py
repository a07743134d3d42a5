"""Quits the program: asks first if something would be lost, and saves the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from core.events import LedPlan
from tui.control.app_interface import AppInterface, served_answers_end
from tui.control.conversation_archive import ConversationArchive
from tui.state.format import plural
from tui.state.seat import answers_of, led_words
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
        return f"The answer stops.{_AGAIN}" if state.answer is not None else ""
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

    def __init__(
        self,
        app: AppInterface,
        conversations: ConversationArchive,
        owner: Callable[[], Owner],
        leave_node: Callable[[], object],  # it keeps running
    ) -> None:
        self._app = app
        self._conversations = conversations
        self._owner, self._leave_node = owner, leave_node
        self._is_asked = False

    async def leave(self) -> None:
        """Ask if needed, then quit. Quits without asking if the question is already open."""
        served = self._app.state.snapshot.served if self._owner() == "window" else None
        text = effect(self._app.state, self._owner())
        if served and not await self._may_end(served):
            return
        if not served and text and not await self._ask(text, ("Stay", "Quit")):
            return
        await self._app.break_off()
        await self._conversations.settle()
        self._app.exit()

    async def _may_end(self, led: LedPlan) -> bool:
        """Ask before this Mac's layers of another Mac's plan are gone; perhaps wait, or leave the node running."""
        again = "Press Ctrl+Q again to quit and leave it running."
        lost = f"If macluster stops on this Mac, {led.led_by} has to do without it. {again}"
        waits = [f"Wait for {answers_of(led)}, then quit"] if led.answers else []
        quits = f"Quit (interrupts {answers_of(led)})" if led.answers else "Quit"
        effect = f"{led_words(led, self._app.state.snapshot)}.\n\n{lost}"
        chosen = await self._ask(effect, ("Stay", "Quit, but leave macluster running on this Mac", *waits, quits))
        if chosen == 1:
            self._leave_node()
        elif waits and chosen == 2:
            await served_answers_end(self._app)
        return chosen > 0

    async def _ask(self, text: str, answers: tuple[str, ...]) -> int:
        """The number of the answer; 1 if the question is already open."""
        if self._is_asked:
            return 1
        self._is_asked = True
        try:
            return await self._app.choose("Quit?", text, answers)
        finally:
            self._is_asked = False
