"""Network paths between this Mac and a linked one, and their speeds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Final

from core.errors import LinkLost, MaclusterError
from core.link.control_link import dial_control
from core.link.network_paths import (
    MAX_NETWORK_PATHS,
    ListenAddress,
    MeasuredPath,
    NetworkPath,
    measure_paths,
    slower_kind,
)
from core.link.session import Kind
from core.mac.interfaces import Interface, reachable
from core.node.peers.addresses import AddressBook
from core.node.peers.mesh import Mesh
from core.node.peers.networks import Networks
from core.node.peers.path_rate import measure_rate
from core.requests.checks import MAX_PATHS, PathFigures
from core.trust.identity import Identity, parse_text_id
from core.trust.roster.store import RosterStore

TRY_S: Final = 2.0
FIGURES_S: Final = 4.0


class Paths:
    """Combines the other Mac's reported addresses with this one's current interfaces."""

    def __init__(
        self, identity: Identity, store: RosterStore, mesh: Mesh, networks: Networks, book: AddressBook
    ) -> None:
        self._identity, self._store = identity, store
        self._mesh, self._networks, self._book = mesh, networks, book

    def direct(self, device_id: str) -> tuple[NetworkPath, ...] | None:
        """Paths over networks that both Macs are on, best kind first; None if the other one has reported nothing."""
        contact = self._mesh.contacts.get(device_id)
        if contact is None or contact.status is None:
            return None
        return direct_ways(self._networks.now, contact.status.reach)

    def ways(self, device_id: str) -> tuple[NetworkPath, ...]:
        """All known paths, including the control link's; empty if not linked."""
        if (contact := self._mesh.contacts.get(device_id)) is None:
            return ()
        host = contact.link.remote_host
        direct = self.direct(device_id) or ()
        if any(way.host == host for way in direct):
            return direct
        return (*direct[: MAX_NETWORK_PATHS - 1], self._linked(host, contact.link.local_host))

    async def tried(self, device_id: str, ways: Sequence[NetworkPath]) -> list[MeasuredPath]:
        places = self._book.of(device_id)
        return await asyncio.to_thread(measure_paths, ways, places[0].port, TRY_S) if ways and places else []

    async def rate(self, device_id: str, way: NetworkPath) -> int:
        """Bytes per second of `way`, measured now over a link of its own. Raises LinkError."""
        if not (places := self._book.of(device_id)):
            raise LinkLost(f"No address of Mac {device_id[:8]} is known.")
        link = await dial_control(
            way.host,
            places[0].port,
            identity=self._identity,
            cluster=self._store.cluster(),
            peer_id=parse_text_id(device_id),
            timeout_s=TRY_S,
            kind=Kind.PATH,
            interface=way.interface,
        )
        return await measure_rate(link)

    async def figures(self, device_id: str) -> tuple[PathFigures, ...]:
        """Round trip and rate of each direct path, best kind first; after `FIGURES_S` only those measured by then."""
        found: list[tuple[int, PathFigures]] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(FIGURES_S):
                for way, rtt_s in await self.tried(device_id, (self.direct(device_id) or ())[:MAX_PATHS]):
                    rate = 0
                    with suppress(MaclusterError):
                        rate = await self.rate(device_id, way)
                    found.append((way.rank, PathFigures(kind=way.kind, rtt_s=rtt_s, bytes_per_s=rate)))
        return tuple(figures for _, figures in sorted(found, key=itemgetter(0)))

    def _linked(self, host: str, own_host: str) -> NetworkPath:
        own = next((each for each in self._networks.now if each.address == own_host), None)
        if own is None:
            return NetworkPath(host)
        return NetworkPath(host, own.name if own.is_link_local else "", own.kind, own.rate_mbits)


def direct_ways(own: Iterable[Interface], reported: Sequence[ListenAddress]) -> tuple[NetworkPath, ...]:
    """Paths to `reported` addresses on a network of this Mac, best kind first; bound to an interface if ambiguous."""
    ways = []
    here = reachable(own, "0.0.0.0")
    for reach in reported:
        over = [each for each in here if each.is_on(reach.host)]
        for each in over:
            name = each.name if each.is_link_local or len(over) > 1 else ""
            ways.append(NetworkPath(reach.host, name, slower_kind(each.kind, reach.kind), each.rate_mbits))
    return tuple(sorted(ways, key=lambda way: way.rank)[:MAX_NETWORK_PATHS])
