"""Leaving the program: what it takes from other Macs, the question about it, and what is saved before.

Only a program that started the node ends it. The simulated Macs of the demo end with it anyway, so it never asks.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from textual.content import Content
from textual.screen import Screen

from tui.screens.asking import ChoiceScreen
from tui.screens.table import is_open
from tui.state.format import plural
from tui.state.state import UiState

if TYPE_CHECKING:
    from tui.app import MaclusterApp
    from tui.screens.pairing import PairingScreen

_ID = "quitting"


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


def question(text: str) -> ChoiceScreen:
    """Stay is the first answer."""
    screen = ChoiceScreen("Quit?", Content(text), ("Stay", "Quit"))
    screen.id = _ID
    return screen


def is_asked(screen: Screen[object]) -> bool:
    """Whether the question is on the screen."""
    return screen.id == _ID


async def leave(app: MaclusterApp, *, ends_node: bool) -> None:
    """Leave; asks first if that takes a model from other Macs. Asked already, it is meant."""
    text = effect(app.state) if ends_node else ""
    if text and not is_asked(app.screen):
        app.push_screen(question(text), partial(_leave_if, app))
    else:
        await _leave(app)


async def _leave_if(app: MaclusterApp, answer: int | None) -> None:
    if answer:
        await _leave(app)


async def _leave(app: MaclusterApp) -> None:
    """Break off a pairing that is under way, save what is not saved yet, end."""
    for screen in app.screen_stack:
        if is_open(screen, "pairing"):
            await cast("PairingScreen", screen).break_off()
    await app.archive.settle()
    app.exit()
