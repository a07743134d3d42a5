"""Conversations that are kept: the questions that the app asks about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual.app import App
from textual.content import Content

from core.requests import SavedSession, SessionName
from tui.format import plural
from tui.screens.asking import AskScreen, ChoiceScreen

if TYPE_CHECKING:
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
