"""Meshes of single Macs over real links, and the events they published."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from core.events import Peer
from core.link.rekey_limits import KEY_LIMITS, KeyUse
from core.node.base.bus import Bus
from core.node.base.journal import Journal
from core.node.base.message_table import MessageTable
from core.node.base.node_message import NodeMessage
from core.node.base.signals import Signals
from core.node.peers.addresses import AddressBook
from core.node.peers.advertised_macs import AdvertisedMacs
from core.node.peers.mesh import LinkEnded, MacLeft, Mesh
from core.node.peers.networks import Networks
from core.node.peers.own_mac import OwnMac
from core.node.peers.worker_state import WorkerState
from core.trust.roster.store import RosterStore
from core.trust.seen_macs import SeenMacs
from core.trust.trust_assessment import KnownFaults, TrustAssessment
from tests.support.contexts import context_of
from tests.support.macs import bundle, chain, mac
from tests.support.node_messages import other_messages
from tests.support.tasks import tasks_of

HOST = "127.0.0.1"
SIZE = 3
LOW, MIDDLE, HIGH = sorted(range(SIZE), key=lambda n: mac(n).text_id)


class MeshHarness:
    """The control links of one Mac of `tests.support.macs` and their parts, without the rest of its node."""

    def __init__(self, folder: Path, number: int, store: RosterStore, key_limits: KeyUse = KEY_LIMITS) -> None:
        self.store = store
        self.bus, self.signals, self.faults, self.worker = Bus(), Signals(), KnownFaults(), WorkerState()
        self.sightings = AdvertisedMacs(lambda _: True)
        self.book = AddressBook(self.sightings)
        self.seen = SeenMacs(folder / f"{number}-seen.json")
        own_id = mac(number).text_id
        self.assessment = TrustAssessment(store, self.seen, self.faults, own_id, folder)
        known = Peer(device_id=own_id, name="m", state="connected", trust="paired", is_self=True)
        journal = Journal(folder / f"{number}-log", "m", self.bus)
        self.tasks = tasks_of(journal)
        self.messages = MessageTable()
        self.node = context_of(
            config={"key_limits": key_limits},
            identity=mac(number),
            store=store,
            seen=self.seen,
            faults=self.faults,
            assessment=self.assessment,
            bus=self.bus,
            signals=self.signals,
            journal=journal,
            tasks=self.tasks,
            messages=self.messages,
        )
        self.own = OwnMac(self.node, known, self.worker, Networks(HOST, self.signals))
        self.mesh = Mesh(self.node, self.book, self.own)
        self.messages.add_rows(self.mesh.messages())


class Post(MeshHarness):
    """A mesh of one of three Macs, and the events it published."""

    def __init__(self, folder: Path, number: int, key_limits: KeyUse = KEY_LIMITS) -> None:
        store = RosterStore(folder / f"{number}-rosters")
        store.adopt(bundle(chain(SIZE), *(mac(n).certificate_der for n in range(SIZE))))
        super().__init__(folder, number, store, key_limits)
        self.worker.has_model, self.worker.step = True, 100 + number
        self.ends: list[tuple[str, str]] = []
        self.heard: list[NodeMessage] = []
        self.left: list[str] = []
        self.listeners: list[Callable[[str, NodeMessage], Awaitable[None]]] = []
        self.messages.add_rows(other_messages(self._hear))
        self.signals.on_awaited(MacLeft, self._note_left)
        self.signals.on_awaited(LinkEnded, self._down)
        self.port = 0

    async def _hear(self, device_id: str, message: NodeMessage) -> None:
        self.heard.append(message)
        for listener in self.listeners:
            await listener(device_id, message)

    async def _note_left(self, mac: MacLeft) -> None:
        self.left.append(mac.device_id)

    async def _down(self, ended: LinkEnded) -> None:
        self.ends.append((ended.device_id, ended.error.what))

    @property
    def accepted(self) -> int:
        return self.mesh.admissions.get("accepted", 0)

    @property
    def open(self) -> int:
        """Count of open links that others dialled."""
        assert self.mesh._server
        return len(self.mesh._server._links)

    def knows(self, number: int) -> bool:
        contact = self.mesh.contacts.get(mac(number).text_id)
        return contact is not None and contact.status is not None

    def said(self, words: str) -> int:
        return sum(words in line.text for line in self.bus.now.logs)


@asynccontextmanager
async def posted(folder: Path, number: int, key_limits: KeyUse = KEY_LIMITS) -> AsyncIterator[Post]:
    post = Post(folder, number, key_limits)
    post.port = await post.mesh.start(HOST, 0)
    try:
        yield post
    finally:
        await post.mesh.stop("The test is over.")
        assert not post.mesh._open
