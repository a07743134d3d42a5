"""Conversations that are kept, left and exported: the questions that the app asks about them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.app import App
from textual.content import Content

from core.requests import Conversation, SavedSession, SessionName
from tui import export as files
from tui.format import plural
from tui.screens.asking import AskScreen, ChoiceScreen

if TYPE_CHECKING:
    from tui.app import MaclusterApp
    from tui.client import NodeClient


async def keep(app: App[Any], client: NodeClient) -> None:
    """Save the last conversation under a name that the person types. Raises what the node refuses."""
    name = await app.push_screen_wait(AskScreen("Keep this conversation", "A name; one that has it is replaced."))
    if name:
        kept = await client.save_session(SessionName(name=name))
        app.notify(f"{kept.name} is kept: {plural(kept.tokens, 'token')} of {kept.model}.", markup=False)


async def take_up(app: App[Any], client: NodeClient) -> SavedSession | None:
    """Load the conversation that the person chooses; None where it is none. Raises what the node refuses."""
    found = [each for each in await client.sessions() if each.problem is None]
    if not found:
        app.notify("No conversation is kept on this Mac yet.", markup=False)
        return None
    names = tuple(f"{each.name} · {each.model}" for each in found)
    effect = Content("It takes the place of what the chat shows, and every Mac of the model gets its part of it.")
    number = await app.push_screen_wait(ChoiceScreen("Go on with", effect, ("None of them", *names)))
    return await client.load_session(SessionName(name=found[number - 1].name)) if number else None


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
