"""The app over a node that sends one event."""

from __future__ import annotations

from collections.abc import AsyncIterator

from core.events import AnyEvent, Snapshot
from core.requests.answers import UnfinishedAnswer
from core.requests.conversations import Conversation, ConversationInfo, SavedSession
from core.requests.plans import ModelChoice
from tui.app import MaclusterApp


class StillNode:
    """A client that sends one event and then nothing."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    async def events(self) -> AsyncIterator[AnyEvent]:
        yield self._snapshot
        import asyncio

        await asyncio.Event().wait()

    async def models(self) -> list[ModelChoice]:
        return []

    async def known_models(self) -> list[ModelChoice]:
        return []

    async def unfinished(self) -> list[UnfinishedAnswer]:
        return []

    async def conversations(self) -> list[ConversationInfo]:
        return []

    async def sessions(self) -> list[SavedSession]:
        return []

    async def keep_conversation(self, conversation: Conversation) -> None: ...


def app_with(snapshot: Snapshot) -> MaclusterApp:
    return MaclusterApp(StillNode(snapshot))  # type: ignore[arg-type]


def text_of(app: MaclusterApp) -> str:
    """The text on the app's screen."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())
