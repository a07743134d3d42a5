"""Conversations that are left, forgotten and exported: the questions that the app asks about them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from core.requests.conversations import Conversation
from tui.control.interface import AppInterface
from tui.state import export as files


async def may_leave(app: AppInterface) -> bool:
    """Whether the conversation on screen may go: of one that is not kept nothing would be left."""
    if not app.state.chat.is_unkept or not app.state.turns:
        return True
    effect = "Nothing of this conversation is kept: when you leave it, it is gone."
    return await app.choose("Leave a chat that is not kept?", effect, ("Stay here", "Leave it")) == 1


async def may_forget(app: AppInterface) -> bool:
    """Whether what is kept of the conversation on screen may be deleted."""
    if not app.state.chat.id:
        return True
    effect = "What is kept of it on this Mac is deleted, with its key. It stays on screen until you leave it."
    return await app.choose("Keep nothing of this chat?", effect, ("Go on keeping it", "Keep nothing of it")) == 1


async def export(app: AppInterface, conversation: Conversation) -> None:
    """Write it to the file that the person names. Raises NodeError, UsageError."""
    words = "A file; Markdown, or JSON where its name ends in .json. Only you can read it, and it is not sealed."
    proposed = str(files.default_path(conversation.title))
    typed = await app.ask("Export the conversation", words, proposed, files.path_from)
    if not typed:
        return
    path = files.path_from(typed)
    text = files.text_for(path, conversation)
    done = await asyncio.to_thread(files.write, path, text)
    if not done and await _may_replace(app, path):
        done = await asyncio.to_thread(files.write, path, text, replace=True)
    if done:
        app.notify(f"Exported to {path}.")


async def _may_replace(app: AppInterface, path: Path) -> bool:
    effect = f"{path} exists already, and its content would be lost."
    return await app.choose("Replace the file?", effect, ("Leave it", "Replace it")) == 1
