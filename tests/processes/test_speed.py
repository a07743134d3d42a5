"""Speed tests between real nodes: of an own hop, of another Mac's, during an answer, stopped, and refused."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from core.demo import DEMO_MODEL
from core.errors import Busy, MaclusterError, NodeError, NotPaired
from core.events import PeerChanged, PeerSeen, Progress
from core.node.peers.link_probe import FRAMES, PROBES, ROUND_TRIPS
from core.requests.checks import SpeedRequest, SpeedResult
from core.verify.running import run_checks
from tests.support.cluster import ask, begin, finish, running_demo, tokens_seen
from tests.support.command import macluster
from tests.support.waiting import undisturbed
from tui.cli.demo import Demo, DemoConfig
from tui.cli.paired_checks import paired_checks

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = "Tell me about the three Macs."
REST_S = 120.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo() -> AsyncIterator[Demo]:
    async with running_demo(DEMO_MODEL, (64, 32, 16)) as running:
        yield running


async def measured(demo: Demo, source: str, target: str) -> SpeedResult:
    """The result of a speed test; asked again while that Mac still rests from another test."""
    async with asyncio.timeout(REST_S):
        while True:
            try:
                return await demo.head.client.test_speed(SpeedRequest(source=source, target=target))
            except Busy:
                await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        pytest.param("", "mbp", id="own"),
        pytest.param("mbp", "mini", id="of others"),
        pytest.param("mini", "studio", id="towards the one who asks"),
    ],
)
async def test_every_hop_of_the_ring_can_be_measured(demo: Demo, source: str, target: str) -> None:
    mark = len(demo.head.seen)
    found = await measured(demo, source, target)
    ids = {p.name: p.device_id for p in demo.head.now.peers}
    assert (found.source, found.target) == (ids[source or "studio"], ids[target])
    assert 0 < found.rtt_min_s <= found.rtt_s < 1
    assert found.round_trips == ROUND_TRIPS
    assert 0 < found.frames <= FRAMES
    assert found.bytes_per_s > 0
    assert not found.answering
    told = [e for e in demo.head.seen[mark:] if isinstance(e, Progress) and e.task == "speed test"]
    assert told
    assert all(e.total == PROBES for e in told)


async def test_an_answer_stays_the_same_and_nobody_is_suspect_meanwhile(demo: Demo) -> None:
    alone = await ask(demo.head, PROMPT, 400)

    async def nobody_is_suspect() -> bool:
        marks = [len(watch.seen) for watch in demo.watches]
        request = await begin(demo.head, PROMPT, 400)
        await tokens_seen(demo.head, request, 2)
        found = await measured(demo, "", "mbp")
        beside = await finish(demo.head, request)
        assert found.answering
        assert beside.tokens == alone.tokens
        events = [e for watch, mark in zip(demo.watches, marks, strict=True) for e in watch.seen[mark:]]
        return not {e.peer.state for e in events if isinstance(e, PeerChanged | PeerSeen)} & {"suspect", "lost"}

    await undisturbed(nobody_is_suspect)


async def test_a_test_can_be_stopped_and_the_next_one_runs(demo: Demo) -> None:
    await measured(demo, "", "mini")
    mark = len(demo.head.seen)
    running = asyncio.create_task(measured(demo, "", "mini"))
    await demo.head.until(lambda w: any(isinstance(e, Progress) for e in w.seen[mark:]), REST_S, "The next test")
    with pytest.raises(Busy):
        await demo.head.client.test_speed(SpeedRequest(target="mbp"))
    await demo.head.client.stop_speed_test()  # it rests for a second before it sends anything
    with pytest.raises(NodeError, match="stopped"):
        await running
    assert (await measured(demo, "", "mini")).frames > 0


async def test_the_command_prints_it(demo: Demo) -> None:
    for words, said in ((["mini", "--json"], "bytes_per_s"), (["studio", "mini"], "round trip")):
        told = await macluster(demo.home.root, "speedtest", *words)
        assert told.returncode == 0
        assert said in told.stdout
        if "--json" in words:
            assert json.loads(told.stdout)["frames"] > 0


async def test_a_report_has_the_link_to_a_mac_and_the_way_back_without_their_names(demo: Demo) -> None:
    checks = paired_checks(demo.head.client.home, "mini")
    found = [each async for each in run_checks(checks)]
    assert [(each.name, each.passed) for each in found] == [("link to the other Mac", True), ("link back", True)]
    assert all(re.fullmatch(r"[\d.]+ ms round trip, \d+ MB/s sealed.*", each.figure) for each in found)
    assert not re.search("mini|studio|lo", " ".join(each.figure for each in found))


async def test_a_mac_that_is_not_paired_is_not_tested() -> None:
    lonely = Demo(DemoConfig(budgets_gb=(8, 8), multicast=False, has_spare=False), lambda _: None)
    try:
        await lonely.start()
        await lonely.find_each_other()
        await lonely.head.until(lambda w: any(p.name == "mbp" or not p.is_self for p in w.now.peers), 240, "Seeing")
        other = next(p for p in lonely.head.now.peers if not p.is_self)
        with pytest.raises(MaclusterError) as refused:
            await lonely.head.client.test_speed(SpeedRequest(target=other.device_id))
        assert isinstance(refused.value, NotPaired)
    finally:
        await lonely.stop()
