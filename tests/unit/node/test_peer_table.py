"""How far the Macs of a plan are, by what their beats carry."""

from __future__ import annotations

from pathlib import Path

import msgspec

from core.address import Place
from core.events import Peer
from core.node.base.bus import Bus
from core.node.base.journal import Journal
from core.node.peers.addresses import AddressBook
from core.node.peers.peer_table import PeerTable
from core.node.peers.sightings import Sightings
from core.node.ring.supervisor import Supervisor
from core.trust.seen import SeenMacs
from core.trust.trust_assessment import TrustAssessment
from tests.support.linked import plan_between
from tests.support.macs import mac
from tests.support.meshes import HIGH, HOST, LOW, MIDDLE, SIZE, Post, posted
from tests.support.tasks import tasks_of
from tests.support.waiting import until


def peers_of(post: Post, number: int, folder: Path, step: int) -> PeerTable:
    """Of a Mac whose worker has finished `step`."""
    own_id, bus, sightings = mac(number).text_id, Bus(), Sightings(lambda _: True)
    seen = SeenMacs(folder / "seen.json")
    standing = TrustAssessment(post.store, seen, own_id, folder)
    own = Peer(device_id=own_id, name="me", state="connected", trust="paired", is_self=True)
    peers = PeerTable(mac(number), post.store, standing, seen, sightings, AddressBook(sightings), bus, own)
    journal = Journal(folder / "log", "me", bus)
    supervisor = Supervisor(mac(number), HOST, journal, tasks_of(journal), lambda _: None, lambda _: None)
    supervisor.step = step
    peers.attach(post.mesh, supervisor, None, "")  # type: ignore[arg-type]  # no plan is served
    return peers


async def test_the_steps_of_a_plan_are_told_by_every_mac_in_the_order_of_the_ring(tmp_path: Path) -> None:
    plan = plan_between(SIZE)
    two = msgspec.structs.replace(plan, stages=tuple(plan.stages[n] for n in (HIGH, LOW)))
    async with posted(tmp_path, LOW) as low, posted(tmp_path, HIGH) as high:
        peers = peers_of(low, LOW, tmp_path, 7)
        assert (peers.status().step, peers.status().has_model) == (7, False)
        assert peers.steps(two) is None, "the two are not linked"
        low.book.by_hand(mac(HIGH).text_id, Place(HOST, high.port))
        low.mesh.dialling.reach(mac(HIGH).text_id)
        await until(lambda: low.knows(HIGH))
        assert peers.steps(two) == [100 + HIGH, 7]
        async with posted(tmp_path, MIDDLE) as middle:
            assert peers.steps(plan) is None
            low.book.by_hand(mac(MIDDLE).text_id, Place(HOST, middle.port))
            low.mesh.dialling.reach(mac(MIDDLE).text_id)
            await until(lambda: low.knows(MIDDLE))
            steps = {LOW: 7, MIDDLE: 100 + MIDDLE, HIGH: 100 + HIGH}
            assert peers.steps(plan) == [steps[n] for n in range(SIZE)]
        await until(lambda: mac(MIDDLE).text_id not in low.mesh.contacts)
        assert peers.steps(plan) is None
