"""The progress of a plan's Macs, from their beats."""

from __future__ import annotations

from pathlib import Path

import msgspec

from core.address import Place
from core.events import PlanProposed
from core.node.peers.peer_table import PeerTable
from core.node.peers.worker_state import PlanChosen
from core.trust.levels import carries_prompts
from tests.support.linked import plan_between
from tests.support.macs import mac
from tests.support.meshes import HIGH, HOST, LOW, MIDDLE, SIZE, Post, posted
from tests.support.waiting import until


def peers_of(post: Post) -> PeerTable:
    """Peers as that Mac sees them."""
    return PeerTable(post.node, post.own, post.worker, post.sightings, post.book, post.mesh)


async def test_the_steps_of_a_plan_are_told_by_every_mac_in_the_order_of_the_ring(tmp_path: Path) -> None:
    plan = plan_between(SIZE)
    two = msgspec.structs.replace(plan, stages=tuple(plan.stages[n] for n in (HIGH, LOW)))
    async with posted(tmp_path, LOW) as low, posted(tmp_path, HIGH) as high:
        low.worker.step, low.worker.has_model = 7, False
        peers, told = peers_of(low), low.own.status()
        assert (told.step, told.has_model) == (7, False)
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


async def test_a_new_plan_decides_at_once_whether_prompts_may_leave(tmp_path: Path) -> None:
    """Not only at the next look at the roster: else a prompt is refused for Macs of the plan before."""
    plan = plan_between(SIZE)
    stranger = msgspec.structs.replace(plan.stages[HIGH], device_id=mac(SIZE).text_id, peer="stranger")
    own = msgspec.structs.replace(plan, stages=(plan.stages[LOW],))
    async with posted(tmp_path, LOW) as low:
        peers = peers_of(low)
        low.bus.publish(PlanProposed(plan=msgspec.structs.replace(plan, stages=(*own.stages, stranger))))
        peers.refresh_trust()
        assert (low.bus.now.trust.weakest, carries_prompts(low.bus.now.trust.level)) == ("stranger", False)
        low.bus.publish(PlanProposed(plan=own))
        low.signals.emit(PlanChosen())
        assert carries_prompts(low.bus.now.trust.level)
