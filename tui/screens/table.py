"""Which screens there are, by the name that the action `open` knows them by."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from textual.screen import Screen

from tui.boundaries import wish_of
from tui.screens.batch import BatchScreen
from tui.screens.check import CheckScreen
from tui.screens.conversations import ConversationsScreen
from tui.screens.hop import HopScreen
from tui.screens.logs import LogsScreen
from tui.screens.models import ModelsScreen
from tui.screens.sampling import SamplingScreen
from tui.screens.sessions import SessionsScreen
from tui.screens.split import SplitScreen
from tui.screens.topology import TopologyScreen
from tui.screens.trust import TrustScreen

if TYPE_CHECKING:
    from tui.app import MaclusterApp


class Opening(NamedTuple):
    """A screen, and how the app makes one."""

    kind: type[Screen[Any]]
    make: Callable[[MaclusterApp], Screen[Any]]


def _split(app: MaclusterApp) -> SplitScreen:
    """The editor of what is loaded."""
    now = app.state.snapshot
    wish = wish_of(now.plan, now.peers) if now.plan else None
    if wish:
        wish = msgspec.structs.replace(wish, model=app.catalog.name_of(wish.model))
    return SplitScreen(app.client, app.state, wish)


SCREENS: Final[dict[str, Opening]] = {
    "conversations": Opening(ConversationsScreen, lambda app: ConversationsScreen(app.archive, app.talk, app.state)),
    "sampling": Opening(SamplingScreen, lambda app: SamplingScreen(app.state.chat.options, app.talk.ask_with)),
    "hop": Opening(HopScreen, lambda app: HopScreen(app.client, app.state)),
    "models": Opening(ModelsScreen, lambda app: ModelsScreen(app.client, app.catalog, app.state)),
    "batch": Opening(BatchScreen, lambda app: BatchScreen(app.client, app.state)),
    "logs": Opening(LogsScreen, lambda app: LogsScreen(app.state, app.client.home.log)),
    "sessions": Opening(SessionsScreen, lambda app: SessionsScreen(app.client, app.state)),
    "check": Opening(CheckScreen, lambda app: CheckScreen(app.client)),
    "split": Opening(SplitScreen, _split),
    "topology": Opening(TopologyScreen, lambda app: TopologyScreen(app.client, app.catalog, app.state)),
    "trust": Opening(TrustScreen, lambda app: TrustScreen(app.client, app.state)),
}
