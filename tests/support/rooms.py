"""All routes of a node, over simulated parts."""

from __future__ import annotations

from typing import Any, TypeVar
from unittest.mock import MagicMock

from aiohttp import web

from core.node.answers.room import AnswersRoom
from core.node.base.context import NodeContext
from core.node.base.room import Room
from core.node.disks.room import DisksRoom
from core.node.pairing.room import PairingRoom
from core.node.peers.room import PeersRoom
from core.node.plans.room import PlansRoom
from core.node.public_api.room import PublicApiRoom
from core.node.relay.room import RelayRoom
from core.node.ring.room import RingRoom
from core.node.trust.room import TrustRoom

ROOMS = (PeersRoom, TrustRoom, PairingRoom, DisksRoom, RingRoom, AnswersRoom, PlansRoom, PublicApiRoom, RelayRoom)

_R = TypeVar("_R", bound=Room)


def room_of(kind: type[_R], **parts: Any) -> _R:
    """A room with these parts instead of its own."""
    room = kind.__new__(kind)
    vars(room).update(parts)
    return room


def routes_of(node: NodeContext, **parts: Any) -> list[web.RouteDef]:
    """The routes of every room; each part not given is a mock."""
    mocked = {"__getattr__": lambda _, name: MagicMock()}
    rooms: list[Room] = [room_of(type(kind.__name__, (kind,), mocked), node=node, **parts) for kind in ROOMS]
    return [row for room in rooms for row in room.routes()]
