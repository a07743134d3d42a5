"""Meshes of single Macs over real links, and what they told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from core.errors import LinkLost
from core.link.rekey_limits import KEY_LIMITS, KeyUse
from core.node.base.bus import Bus
from core.node.base.journal import Journal
from core.node.base.messages import AnyMessage, Status
from core.node.peers.addresses import AddressBook
from core.node.peers.mesh import Mesh
from core.node.peers.sightings import Sightings
from core.trust.roster import RosterStore
from tests.support.macs import bundle, chain, mac
from tests.support.tasks import tasks_of

HOST = "127.0.0.1"
SIZE = 3
LOW, MIDDLE, HIGH = sorted(range(SIZE), key=lambda n: mac(n).text_id)


class Post:
    """A mesh of one Mac, and what it told."""

    def __init__(self, folder: Path, number: int, key_limits: KeyUse = KEY_LIMITS) -> None:
        self.bus = Bus()
        self.store = RosterStore(folder / f"{number}-rosters")
        self.store.adopt(bundle(chain(SIZE), *(mac(n).certificate_der for n in range(SIZE))))
        self.book = AddressBook(Sightings(lambda _: True))
        self.ends: list[tuple[str, str]] = []
        self.heard: list[AnyMessage] = []
        status = Status(
            name="m",
            chip="",
            memory_bytes=1,
            budget_bytes=1,
            used_bytes=1,
            worker_pid=1,
            worker_rss_bytes=1,
            rtts={},
            has_model=True,
            step=100 + number,
        )
        journal = Journal(folder / f"{number}-log", "m", self.bus)
        self.tasks = tasks_of(journal)
        self.mesh = Mesh(
            mac(number),
            self.store,
            self.book,
            journal,
            self.tasks,
            status=lambda: status,
            on_change=lambda _: None,
            on_roster=self._nothing,
            on_message=self._hear,
            on_down=self._down,
            key_limits=key_limits,
        )
        self.port = 0

    async def _nothing(self) -> None:
        return

    async def _hear(self, device_id: str, message: AnyMessage) -> None:
        self.heard.append(message)

    async def _down(self, device_id: str, error: LinkLost) -> None:
        self.ends.append((device_id, error.what))

    @property
    def accepted(self) -> int:
        return self.mesh.knocks.get("accepted", 0)

    @property
    def open(self) -> int:
        """How many links others have dialled and nobody has closed."""
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
