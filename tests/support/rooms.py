"""All routes of a node, over simulated parts."""

from __future__ import annotations

from dataclasses import fields
from typing import Any
from unittest.mock import MagicMock

from aiohttp import web

from core.node.answers.room import AnswersRoom
from core.node.base.context import NodeContext
from core.node.disks.room import DisksRoom
from core.node.pairing.room import PairingRoom
from core.node.peers.room import PeersRoom
from core.node.plans.room import PlansRoom
from core.node.public_api.room import PublicApiRoom
from core.node.relay.room import RelayRoom
from core.node.ring.room import RingRoom
from core.node.trust.room import TrustRoom

ROOMS = (PeersRoom, TrustRoom, PairingRoom, DisksRoom, RingRoom, AnswersRoom, PlansRoom, PublicApiRoom, RelayRoom)


def routes_of(node: NodeContext, **parts: Any) -> list[web.RouteDef]:
    """The routes of every room; each part not given is a mock."""
    rooms = [
        kind(
            node=node, **{each.name: parts.get(each.name, MagicMock()) for each in fields(kind) if each.name != "node"}
        )
        for kind in ROOMS
    ]
    return [row for room in rooms for row in room.routes()]
