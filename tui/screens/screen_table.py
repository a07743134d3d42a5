"""Screens by name for the action `open`; imported when opened, since all imports would delay the first frame."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, Protocol

import msgspec
from textual.screen import Screen

from tui.client import NodeClient
from tui.control.chat_controller import ChatController
from tui.control.conversation_archive import ConversationArchive
from tui.control.model_catalog import ModelCatalog
from tui.state.boundaries import options_of
from tui.state.load_options import in_topology
from tui.state.state import UiState


class Sources(Protocol):
    """Parts of the app that screens use."""

    client: NodeClient
    state: UiState
    catalog: ModelCatalog
    chat: ChatController
    conversations: ConversationArchive


# arguments of a screen
WITH: Final[dict[str, Callable[[Sources], tuple[Any, ...]]]] = {
    "conversations": lambda app: (app.client, app.conversations, app.chat, app.state),
    "sampling": lambda app: (app.state.chat.options, app.chat.ask_with),
    "hop": lambda app: (app.client, app.state),
    "models": lambda app: (app.client, app.catalog, app.state),
    "api": lambda app: (app.client, app.state),
    "batch": lambda app: (app.client, app.state),
    "timeline": lambda app: (app.client, app.state),
    "logs": lambda app: (app.state, app.client.home.log),
    "check": lambda app: (app.client,),
    "split": lambda app: (app.client, app.state, _what_is_loaded(app)),
    "topology": lambda app: (app.client, app.catalog, app.state),
    "trust": lambda app: (app.client, app.state),
    "peer": lambda app: (app.client, app.state),
    "pairing": lambda app: (app.client, app.state),
}


def make(app: Sources, name: str, **details: object) -> Screen[Any]:
    """The screen of that name: `tui/screens/hop.py` has the class HopScreen. `details` are for that one alone."""
    kind = getattr(import_module(f"tui.screens.{name}"), _class_of(name))
    screen: Screen[Any] = kind(*WITH[name](app), **details)
    return screen


def is_open(screen: Screen[Any], name: str) -> bool:
    return type(screen).__name__ == _class_of(name)


def _class_of(name: str) -> str:
    return f"{name.title()}Screen"


def _what_is_loaded(app: Sources) -> object:
    now = app.state.snapshot
    if now.plan is None:
        return None
    request = in_topology(options_of(now.plan, now.peers), now.plan.topology)
    return msgspec.structs.replace(request, model=app.catalog.name_of(request.model))
