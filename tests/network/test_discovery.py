"""Bonjour on loopback, with hosts that lie, and nodes that find each other without it."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import psutil
import pytest

from core.address import Place
from core.events import AnyEvent, Peer, PeerGone, PeerSeen
from core.link.control_link import serve_control
from core.node.peers.advertised_macs import MAX_RECORDS
from core.node.peers.discovery import AdvertisementEnded, Discovery, Sighting
from core.trust.identity import text_id
from core.trust.levels import carries_prompts
from tests.support.contexts import context_of
from tests.support.macs import cluster, mac
from tests.support.nodes import HOST, advertise, free_port, own_port, paired_home, responder, running_node
from tui.cli.watch import Watch

pytestmark = pytest.mark.usefixtures("bonjour")

FOUND_S = 120.0
MIB = 1 << 20
LOW, HIGH = sorted((0, 1), key=lambda number: mac(number).text_id)


RUN = secrets.token_bytes(14)  # another run on this machine hears our advertisements too


def stranger_id(number: int) -> str:
    return text_id(RUN + number.to_bytes(2, "big"))


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(FOUND_S):
        while not reached():  # noqa: ASYNC110 - the condition sends no event
            await asyncio.sleep(0.02)


class Browser:
    """A Discovery that records its events."""

    def __init__(self, device_id: str, name: str = "browser") -> None:
        self.seen: list[Sighting] = []
        self.vanished: list[AdvertisementEnded] = []
        node = context_of(own_id=device_id, name=name)
        node.signals.on(Sighting, self.seen.append)
        node.signals.on(AdvertisementEnded, self.vanished.append)
        self.discovery = Discovery(node)
        self._journal = node.journal

    @property
    def contests(self) -> list[str]:
        lines = [line.text for line in self._journal.after(0, 100)[1]]
        return [text for text in lines if text.startswith("Another host advertises this Mac's id")]

    def places(self, device_id: str) -> set[Place]:
        return {place for s in self.seen if s.device_id == device_id for place in s.places}


async def started(stack: AsyncExitStack, device_id: str, port: int) -> Browser:
    browser = Browser(device_id)
    stack.push_async_callback(browser.discovery.stop)
    await browser.discovery.look(port)
    return browser


async def test_who_advertises_this_macs_id_first_cannot_silence_it() -> None:
    own, other = stranger_id(1), stranger_id(2)
    async with AsyncExitStack() as stack:
        rogue = await stack.enter_async_context(responder())
        await advertise(rogue, own, "rogue", 6666)
        browser = await started(stack, other, 7001)
        await until(lambda: Place(HOST, 6666) in browser.places(own))
        honest = await started(stack, own, 7002)
        await until(lambda: browser.places(own) == {Place(HOST, 6666), Place(HOST, 7002)})
        await until(lambda: Place(HOST, 7001) in honest.places(other))
        await until(lambda: len(honest.contests) == 1)
        assert not browser.contests
        assert not honest.places(own), "its own id is no other Mac"


async def test_records_that_are_too_long_or_for_another_id_are_refused_and_counted() -> None:
    async with AsyncExitStack() as stack:
        browser = await started(stack, stranger_id(3), 7001)
        rogue = await stack.enter_async_context(responder())
        long = {f"k{n}": "x" * 200 for n in range(6)}
        await advertise(rogue, stranger_id(4), "long", 6666, **long)
        await advertise(rogue, "no-device-id", "no id", 6666)
        await advertise(rogue, stranger_id(5), b"\x1b]52;c;aGk=\x07\xff", 6666)
        await until(lambda: browser.discovery.refused >= 3)
        await advertise(rogue, stranger_id(6), b"fine\x1b[2J\xe2\x80\xae", 6666)
        await until(lambda: bool(browser.places(stranger_id(6))))
        named = {s.device_id: s.name for s in browser.seen}
        assert named[stranger_id(6)] == "fine[2J"
        assert not named.keys() & {stranger_id(4), stranger_id(5)}


# ---- real nodes


def row(watch: Watch, device_id: str) -> Peer | None:
    rows = [p for p in watch.now.peers if p.device_id == device_id]
    assert len(rows) <= 1
    return rows[0] if rows else None


def linked(watch: Watch, number: int) -> bool:
    peer = row(watch, mac(number).text_id)
    return peer is not None and peer.state == "connected"


def gone(events: list[AnyEvent], device_id: str) -> int:
    return sum(isinstance(e, PeerGone) and e.device_id == device_id for e in events)


async def link_up(*watches: tuple[Watch, int]) -> None:
    await asyncio.gather(
        *(w.until(lambda w, n=n: linked(w, n), FOUND_S, "Linking") for w, n in watches)  # type: ignore[misc]
    )


@pytest.mark.slow
async def test_a_hundred_macs_and_a_rogue_under_a_members_id_and_name_leave_the_cluster_as_it_is(
    tmp_path: Path,
) -> None:
    low, high = paired_home(tmp_path, LOW), paired_home(tmp_path, HIGH)
    member = mac(HIGH).text_id
    crowd = [stranger_id(100 + number) for number in range(100)]
    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(running_node(high))
        watch = await stack.enter_async_context(running_node(low))  # it dials at once, the other one waits
        await link_up((watch, HIGH), (other, LOW))
        before = row(watch, member)
        assert before
        assert before.address == f"{HOST}:{own_port(other)}"

        stranger = await serve_control(HOST, 0, identity=mac(5), cluster=lambda: cluster(6), on_link=_nobody)
        stack.push_async_callback(stranger.wait_closed)
        stack.callback(stranger.close)
        rogue_port = stranger.sockets[0].getsockname()[1]
        rogue = await stack.enter_async_context(responder())
        liar = await advertise(rogue, member, before.name, rogue_port)
        for number, device_id in enumerate(crowd):
            last = await advertise(rogue, device_id, before.name if number == 0 else f"mac {number}", rogue_port)
        await watch.until(lambda w: {p.device_id for p in w.now.peers} >= {*crowd}, FOUND_S, "Seeing a hundred Macs")
        for _ in range(3):
            await (await rogue.async_unregister_service(last))
            await asyncio.sleep(1.2)  # a goodbye takes effect after a second
            last = await advertise(rogue, crowd[-1], "mac 99", rogue_port)
        rogue_place = f"{HOST}:{rogue_port}"
        async with asyncio.timeout(FOUND_S):
            while rogue_place not in (row(watch, member) or before).also_at:
                await rogue.async_update_service(liar)  # a datagram may be lost, and a rogue is loud
                await asyncio.sleep(0.5)

        await link_up((watch, HIGH))
        peer = row(watch, member)
        assert peer
        assert (peer.name, peer.trust, peer.state) == (before.name, "paired", "connected")
        assert (peer.address, peer.problem) == (before.address, "")
        assert gone(watch.seen, member) == gone(other.seen, mac(LOW).text_id) == 0
        shown = [p for p in watch.now.peers if p.device_id in crowd]
        assert len(shown) == 100
        assert {(p.trust, p.state) for p in shown} == {("unpaired", "seen")}
        assert sum(isinstance(e, PeerSeen) and e.peer.device_id in crowd for e in watch.seen) == 100
        assert not any(gone(watch.seen, device_id) for device_id in crowd), "one of them flaps"
        assert sum(member[:8] in line.text and "its key decides" in line.text for line in watch.now.logs) == 1
        await watch.until(lambda w: w.now.counters.mdns_records >= 101, FOUND_S, "Counting them")

        node = next(p for p in psutil.process_iter() if str(high.root) in _command(p))
        node.send_signal(signal.SIGKILL)  # its Bonjour sends no goodbye, and it comes back on another port
        await watch.until(lambda w: (row(w, member) or before).state == "lost", FOUND_S, "Losing it")
        lost = row(watch, member)
        assert lost
        assert not carries_prompts(lost.trust), "an id that is advertised says nothing of who is there"
        await watch.until(lambda w: "is not a Mac" in (row(w, member) or before).problem, FOUND_S, "Naming the rogue")
        again = await stack.enter_async_context(running_node(high))
        await link_up((watch, HIGH), (again, LOW))
        found = row(watch, member)
        assert found
        assert f"{HOST}:{own_port(again)}" in (found.address, *found.also_at)
        assert not stranger._links


@pytest.mark.slow
async def test_a_flood_of_advertisements_is_bounded_and_costs_no_member_its_row(tmp_path: Path) -> None:
    low, high = paired_home(tmp_path, LOW), paired_home(tmp_path, HIGH)
    member, crowd = mac(HIGH).text_id, [stranger_id(1000 + number) for number in range(3 * MAX_RECORDS)]
    async with running_node(high) as other, running_node(low) as watch:
        await link_up((watch, HIGH), (other, LOW))
        node = psutil.Process(next(p.pid for p in psutil.process_iter() if str(low.root) in _command(p)))
        rss = node.memory_info().rss
        async with responder() as rogue:
            for device_id in crowd:
                await advertise(rogue, device_id, "flood", 6666)
            most = MAX_RECORDS + len(watch.now.peers)
            await watch.until(lambda w: turned_away(w) > MAX_RECORDS, FOUND_S, "Turning some away")
            assert watch.now.counters.mdns_records <= MAX_RECORDS
            assert len(watch.now.peers) <= most
            assert (row(watch, member) or watch.now.peers[0]).state == "connected"
            assert gone(watch.seen, member) == gone(other.seen, mac(LOW).text_id) == 0
            assert node.memory_info().rss - rss < 20 * MIB


def turned_away(watch: Watch) -> int:
    return watch.now.counters.mdns_evicted + watch.now.counters.mdns_refused


async def _nobody(link: object) -> None:
    pytest.fail("the rogue got a link")


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline()) if process.ppid() == os.getpid() else ""
    except psutil.Error:
        return ""


@pytest.mark.slow
@pytest.mark.parametrize(
    "asking", [pytest.param(LOW, id="low"), pytest.param(HIGH, id="high", marks=pytest.mark.nightly)]
)
async def test_without_bonjour_a_given_place_is_enough_and_is_remembered(tmp_path: Path, asking: int) -> None:
    answering = HIGH + LOW - asking
    near, far = paired_home(tmp_path, asking), paired_home(tmp_path, answering)
    port = free_port()
    place = f"{HOST}:{port}"
    async with running_node(near, "--no-multicast", "--peer", place) as watch:
        await watch.until(lambda w: any(place in line.text for line in w.now.logs), FOUND_S, "Not finding it yet")
        assert row(watch, mac(answering).text_id) is None, "nobody knows whose place that is"
        async with running_node(far, "--no-multicast", port=port) as other:
            await link_up((watch, answering), (other, asking))
            peer = row(watch, mac(answering).text_id)
            assert peer
            assert (peer.address, peer.found_by, peer.trust) == (place, "address", "paired")
    assert json.loads(near.addresses.read_bytes())["content"] == {mac(answering).text_id: [[HOST, port]]}

    async with running_node(near, "--no-multicast") as watch:
        await watch.until(lambda w: bool(_problem(w, answering)), FOUND_S, "Looking where it was last")
        assert f"Nothing listens at {HOST} port {port}." in _problem(watch, answering)
        async with running_node(far, "--no-multicast", port=port) as other:
            await link_up((watch, answering), (other, asking))
            assert _problem(watch, answering) == ""


def _problem(watch: Watch, number: int) -> str:
    peer = row(watch, mac(number).text_id)
    return peer.problem if peer else ""
