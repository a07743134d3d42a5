"""Base of rooms: a room is one concern of the node, with its messages, commands and signals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from aiohttp import web

from core.node.base.context import NodeContext
from core.node.base.message_table import MessageRow


@dataclass(frozen=True, kw_only=True)
class Room:
    """Base of all rooms: `core/node/<room>/room.py` has its parts as fields, and its tables. `build` makes the parts
    from the context and lower rooms; `core.node.parts` calls it in floor order.
    """

    node: NodeContext

    def messages(self) -> Iterable[MessageRow]:
        """Rows for the messages of other Macs that this room handles."""
        return ()

    def routes(self) -> Iterable[web.RouteDef]:
        """Rows for the commands that this room carries out."""
        return ()

    def subscribe(self) -> None:
        """Subscribe to signals of lower rooms."""


def join(node: NodeContext, rooms: Iterable[Room]) -> None:
    """Join the rooms' messages and signals, in floor order: lower rooms hear a signal first."""
    for room in rooms:
        node.messages.add_rows(room.messages())
        room.subscribe()
