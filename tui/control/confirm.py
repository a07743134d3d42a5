"""Conversations that are left, forgotten and exported: the questions that the app asks about them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.app import App
from textual.content import Content

from core.requests import Conversation
from tui.screens.asking import AskScreen, ChoiceScreen
from tui.state import export as files

if TYPE_CHECKING:
    from tui.app import MaclusterApp


async def may_leave(app: MaclusterApp) -> bool:
    """Whether the conversation on screen may go: of a private one nothing would be left."""
    if not app.state.chat.is_private or not app.state.turns:
        return True
    effect = Content("Nothing of this conversation is kept: when you leave it, it is gone.")
    return await app.push_screen_wait(ChoiceScreen("Leave a private chat?", effect, ("Stay here", "Leave it"))) == 1


async def may_forget(app: MaclusterApp) -> bool:
    """Whether what is kept of the conversation on screen may be deleted."""
    if not app.state.chat.id:
        return True
    effect = Content("What is kept of it on this Mac is deleted, with its key. It stays on screen until you leave it.")
    answers = ("Go on keeping it", "Keep nothing of it")
    return await app.push_screen_wait(ChoiceScreen("Make this chat private?", effect, answers)) == 1


async def export(app: App[Any], conversation: Conversation) -> None:
    """Write it to the file that the person names. Raises NodeError, UsageError."""
    words = "A file; Markdown, or JSON where its name ends in .json. Only you can read it, and it is not sealed."
    default = str(files.default_path(conversation.title))
    typed = await app.push_screen_wait(AskScreen("Export the conversation", words, default))
    if not typed:
        return
    path = files.path_from(typed)
    text = files.text_for(path, conversation)
    done = await asyncio.to_thread(files.write, path, text)
    if not done and await _may_replace(app, path):
        done = await asyncio.to_thread(files.write, path, text, replace=True)
    if done:
        app.notify(f"Exported to {path}.", markup=False)


async def _may_replace(app: App[Any], path: Path) -> bool:
    effect = Content(f"{path} is there already, and what is in it would be lost.")
    return await app.push_screen_wait(ChoiceScreen("Replace the file?", effect, ("Leave it", "Replace it"))) == 1
