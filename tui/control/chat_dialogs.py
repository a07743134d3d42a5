"""Dialogs about leaving, deleting and exporting conversations."""

from __future__ import annotations

import asyncio
from pathlib import Path

from core.requests.conversations import Conversation
from tui.control.app_interface import AppInterface
from tui.state import export as files


async def may_leave(app: AppInterface) -> bool:
    if not app.state.chat.is_unkept or not app.state.turns:
        return True
    effect = "This chat isn't saved. If you leave it, it is gone."
    return await app.choose("Leave an unsaved chat?", effect, ("Stay", "Leave")) == 1


async def may_forget(app: AppInterface) -> bool:
    if not app.state.chat.id:
        return True
    effect = "The saved copy on this Mac will be deleted. The chat stays on screen until you leave it."
    return await app.choose("Turn off saving for this chat?", effect, ("Keep saving", "Delete and stop saving")) == 1


async def export(app: AppInterface, conversation: Conversation) -> None:
    """Export to a file that the person names. Raises NodeError, UsageError."""
    words = (
        "Saved as Markdown, or as JSON if the name ends in .json. "
        "The file is not encrypted; only your account can read it."
    )
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
    effect = f"{path} already exists. Its content would be lost."
    return await app.choose("Replace the file?", effect, ("Cancel", "Replace")) == 1
