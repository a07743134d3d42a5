"""Base of rooms: a room is one concern of the node, with its messages, commands and signals."""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web

from core.node.base.context import NodeContext
from core.node.base.message_table import MessageRow


class Room:
    """Base of all rooms: makes its parts from the context and lower rooms, and has their tables."""

    def __init__(self, node: NodeContext) -> None:
        self.node = node

    def messages(self) -> Iterable[MessageRow]:
        return ()

    def routes(self) -> Iterable[web.RouteDef]:
        return ()

    def subscribe(self) -> None:
        """Subscribe to signals of lower rooms."""


def join(node: NodeContext, rooms: Iterable[Room]) -> None:
    """Join the rooms' messages and signals, in floor order: lower rooms hear a signal first."""
    for room in rooms:
        node.messages.add_rows(room.messages())
        room.subscribe()
