"""One Mac that dials others over real links, and the listening ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from core.address import Place
from core.link.control_link import ControlLink, ControlServer, serve_control
from core.node.base.bus import Bus
from core.node.base.journal import Journal
from core.node.peers.addresses import AddressBook
from core.node.peers.advertised_macs import AdvertisedMacs
from core.node.peers.dialling import Dialling
from core.trust.identity import text_id
from core.trust.roster.bundle import Cluster
from core.trust.roster.store import RosterStore
from core.trust.trust_assessment import KnownFaults
from tests.support.contexts import context_of
from tests.support.macs import bundle, chain, cluster, mac

HOST = "127.0.0.1"
SIZE = 4
ORDER = sorted(range(SIZE), key=lambda n: mac(n).text_id)
ME, PEER, OTHER = ORDER[0], ORDER[1], ORDER[2]  # the lower id dials at once


class DiallingNode:
    """Dials as mac ME and keeps the links."""

    def __init__(self, folder: Path, *anybody: Place) -> None:
        self.store = RosterStore(folder / "rosters")
        self.sightings = AdvertisedMacs(lambda _: True)
        self.book = AddressBook(self.sightings, anybody)
        self.bus, self.faults = Bus(), KnownFaults()
        self.links: dict[str, ControlLink] = {}
        journal = Journal(folder / "log", "me", self.bus)
        self.dialling = Dialling(
            context_of(identity=mac(ME), store=self.store, faults=self.faults, journal=journal),
            self.book,
            is_linked=self.links.__contains__,
            on_link=self._take,
        )

    def pair(self) -> None:
        self.store.adopt(bundle(chain(SIZE), *(mac(n).certificate_der for n in range(SIZE))))
        self.dialling.roster_changed()

    def _take(self, link: ControlLink) -> None:
        self.links[text_id(link.peer_id)] = link
        self.dialling.linked(text_id(link.peer_id))

    def said(self, words: str) -> int:
        return sum(words in line.text for line in self.bus.now.logs)


@asynccontextmanager
async def dialling_node(folder: Path, *anybody: Place) -> AsyncIterator[DiallingNode]:
    dialler = DiallingNode(folder, *anybody)
    try:
        yield dialler
    finally:
        await dialler.dialling.stop()
        for link in dialler.links.values():
            link.close()
        await asyncio.gather(*(link.wait_closed() for link in dialler.links.values()))


@asynccontextmanager
async def home_of(
    number: int, knows: Callable[[], Cluster] = lambda: cluster(SIZE)
) -> AsyncIterator[tuple[Place, ControlServer]]:
    """A listening node of that Mac, and its address."""
    links: list[ControlLink] = []

    async def take(link: ControlLink) -> None:
        links.append(link)

    server = await serve_control(HOST, 0, identity=mac(number), cluster=knows, on_link=take)
    try:
        yield Place(HOST, server.sockets[0].getsockname()[1]), server
    finally:
        server.close()
        await server.wait_closed()
        for link in links:
            link.close()
        await asyncio.gather(*(link.wait_closed() for link in links))


def another_cluster() -> Cluster:
    return Cluster(chain(SIZE, b"D" * 16)[-1], cluster(SIZE).certificates)
