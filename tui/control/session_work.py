"""Saves and loads sessions for a screen, one at a time; a running one can be stopped."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine

from core.errors import MaclusterError
from core.requests.conversations import SavedSession, SessionName
from tui.control.app_interface import AppInterface
from tui.control.chat_controller import ChatController
from tui.state.format import plural
from tui.state.plan_words import is_of_ranks
from tui.state.state import UiState, cleaned


class SessionWork:
    """Saves and loads sessions."""

    def __init__(self, app: AppInterface, chat: ChatController) -> None:
        self._app, self._client, self._chat = app, app.client, chat
        self.words, self.is_stopping, self._since = "", False, 0.0

    @property
    def waited_s(self) -> float:
        return max(0.0, time.monotonic() - self._since)

    def why_not(self, run: str, state: UiState) -> str:
        """Why "save" or "load" can't be done now; "" if it can."""
        if self.words:
            return f"{self.words} isn't finished yet (Esc stops it)."
        if state.snapshot.plan_status != "ready":
            return "No model is ready (Ctrl+O loads one)."
        if state.snapshot.plan and is_of_ranks(state.snapshot.plan):
            return "Sessions need a split by layers (T chooses another topology)."
        return "Nothing has been asked yet." if run == "save" and not state.turns else ""

    async def all(self, text: str = "") -> list[SavedSession]:
        found = await self._client.sessions()
        if text:
            found = [await self._with_words(one) for one in found if not one.problem]
        return [cleaned(one) for one in found]

    async def _with_words(self, one: SavedSession) -> SavedSession:
        try:
            return await self._client.session(SessionName(name=one.name))
        except MaclusterError:  # it was deleted meanwhile, or is damaged after its header
            return one

    async def stop(self) -> None:
        """Stop the running work, unless it is already stopping."""
        if self.words and not self.is_stopping:
            self.is_stopping = True
            await self._client.stop_session()

    async def load(self, name: str) -> bool:
        """Load a session into the plan's Macs and its messages into the chat. Returns whether that worked."""
        return await self._run(f"Loading {name}", self._load(SessionName(name=name)))

    async def save(self, name: str) -> bool:
        return await self._run(f"Saving {name}", self._save(SessionName(name=name)))

    async def delete(self, name: str) -> None:
        await self._client.delete_session(SessionName(name=name))
        self._app.notify(f"{name} was deleted.")

    async def _load(self, wanted: SessionName) -> None:
        kept = await self._client.load_session(wanted)
        self._chat.show(kept.messages)
        self._app.notify(f"{kept.name} resumed: {plural(kept.tokens, 'token')} of {kept.model}.")

    async def _save(self, wanted: SessionName) -> None:
        kept = await self._client.save_session(wanted)
        self._app.notify(f"Saved {kept.name}: {plural(kept.tokens, 'token')} of {kept.model}.")

    async def _run(self, words: str, work: Coroutine[object, object, None]) -> bool:
        self.words, self.is_stopping, self._since = words, False, time.monotonic()
        try:
            await work
        except MaclusterError as error:
            self._app.show_problem(error.problem)
            return False
        except asyncio.CancelledError:
            self._app.notify(f"{words} continues in the background.")
            raise
        finally:
            self.words, self.is_stopping = "", False
        return True
