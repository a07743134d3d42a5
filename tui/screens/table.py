"""Which screens there are, by the name that the action `open` knows them by."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from textual.screen import Screen

from tui.screens.models import ModelsScreen
from tui.screens.trust import TrustScreen

if TYPE_CHECKING:
    from tui.app import MaclusterApp


class Opening(NamedTuple):
    """A screen, and how the app makes one."""

    kind: type[Screen[Any]]
    make: Callable[[MaclusterApp], Screen[Any]]


SCREENS: Final[dict[str, Opening]] = {
    "models": Opening(ModelsScreen, lambda app: ModelsScreen(app.state, app.catalog.choices)),
    "trust": Opening(TrustScreen, lambda app: TrustScreen(app.client, app.state)),
}
