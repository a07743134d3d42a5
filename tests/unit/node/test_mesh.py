"""The mesh over real links: one link per pair, new keys in time, and attacks of a paired Mac that fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from core.address import Place
from core.errors import LinkError, LinkLost
from core.events import RequestDone, RequestStarted
from core.link import control_link
from core.link.control_link import HANDSHAKES, ControlLink, dial_control
from core.link.frames import FrameType
from core.link.rekey_limits import KeyUse
from core.node.base.node_message import BEATS, NodeMessage, to_frame
from core.node.peers import dialling, mesh
from core.node.peers.discovery import Sighting
from core.node.peers.messages import Bye, Ping
from core.node.peers.networks import NetworksChanged
from core.node.peers.peer_table import PeerTable
from core.node.ring.messages import Release
from core.text import Clean
from core.trust.identity import text_id
from core.trust.roster.bundle import STAND
from tests.support.macs import cluster, mac
from tests.support.meshes import HIGH, HOST, LOW, MIDDLE, SIZE, Post, posted
from tests.support.node_messages import STATUS
from tests.support.waiting import until

FEW = KeyUse(frames=4, bytes=1 << 52, age_s=1e9)


class HostileMember:
    """A member whose keys the test holds, with any number of links to a post; it reads them all."""

    def __init__(self, number: int, post: Post, to: int) -> None:
        self._number, self._post, self._to = number, post, to
        self.links: list[ControlLink] = []
        self._readers: list[asyncio.Task[None]] = []
        self.read: dict[ControlLink, list[FrameType]] = {}
        self._succeeded: set[ControlLink] = set()

    async def dial(self) -> ControlLink:
        link = await dial_control(
            HOST,
            self._post.port,
            identity=mac(self._number),
            cluster=cluster(SIZE),
            peer_id=mac(self._to).device_id,
            timeout_s=60.0,
        )
        self.links.append(link)
        self.read[link] = []
        self._readers.append(asyncio.create_task(self._follow(link)))
        return link

    async def _follow(self, link: ControlLink) -> None:
        try:
            while True:
                kind, _ = await link.recv()
                self.read[link].append(kind)
                if kind is FrameType.PING and link not in self._succeeded:
                    await link.send(*to_frame(Ping(sent=0.0)))
        except LinkLost:
            self.read[link].append(FrameType.BYE)

    def succeed(self, link: ControlLink, other: ControlLink) -> None:
        """Say RESUME, the last frame of `link`: a ping that is answered after it would break the link."""
        self._succeeded.add(link)
        link.succeed(other)

    def is_ended(self, link: ControlLink) -> bool:
        return FrameType.BYE in self.read[link]

    async def gone(self) -> None:
        for link in self.links:
            link.close()
        await asyncio.gather(*self._readers, *(link.wait_closed() for link in self.links))


@asynccontextmanager
async def hand(number: int, post: Post, to: int) -> AsyncIterator[HostileMember]:
    held = HostileMember(number, post, to)
    try:
        yield held
    finally:
        await held.gone()


@pytest.mark.slow
async def test_links_get_new_keys_again_and_again_and_no_message_is_lost_or_overtaken(tmp_path: Path) -> None:
    async with posted(tmp_path, LOW, FEW) as low, posted(tmp_path, HIGH) as high:
        low.book.by_hand(mac(HIGH).text_id, Place(HOST, high.port))
        low.mesh.dialling.reach(mac(HIGH).text_id)
        await until(lambda: low.knows(HIGH) and high.knows(LOW))
        sent, begun = 0, high.accepted
        while high.accepted < begun + 4:
            for source, target in ((low, HIGH), (high, LOW)):
                assert await source.mesh.send(mac(target).text_id, Release(plan_gen=sent + 1, reason=""))
            sent += 1
            await asyncio.sleep(0.02)
        await until(lambda: len(low.heard) == len(high.heard) == sent)
        for post in (low, high):
            assert [m.plan_gen for m in post.heard if isinstance(m, Release)] == list(range(1, sent + 1))
            assert post.ends == []
        await until(lambda: high.open == 1)
        assert low.accepted == 0, "who dialled dials"


@pytest.mark.slow
async def test_a_link_that_cannot_be_dialled_anew_stays_and_is_said(tmp_path: Path) -> None:
    async with posted(tmp_path, LOW, FEW) as low, posted(tmp_path, HIGH) as high:
        low.book.by_hand(mac(HIGH).text_id, Place(HOST, high.port))
        low.mesh.dialling.reach(mac(HIGH).text_id)
        await until(lambda: low.knows(HIGH))
        assert high.mesh._server
        high.mesh._server.close()
        await high.mesh._server.wait_closed()
        await until(lambda: low.said("keeps its keys for now: Nothing listens at") == 2)
        assert (low.ends, low.mesh.dialling.problem(mac(HIGH).text_id)) == ([], "")
        assert not low.mesh.is_suspect(mac(HIGH).text_id)


async def test_two_dials_that_cross_leave_one_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialling, "PATIENCE_S", 0.0)
    async with posted(tmp_path, LOW) as low, posted(tmp_path, HIGH) as high:
        for here, there, number in ((low, high, HIGH), (high, low, LOW)):
            here.book.by_hand(mac(number).text_id, Place(HOST, there.port))
            here.mesh.dialling.reach(mac(number).text_id)
        await until(lambda: low.knows(HIGH) and high.knows(LOW) and low.open + high.open == 1)
        assert (low.ends, high.ends) == ([], [])


@pytest.mark.parametrize("number", [pytest.param(LOW, id="low"), pytest.param(HIGH, id="high")])
@pytest.mark.slow
async def test_a_mac_that_dials_twice_and_says_no_resume_keeps_one_link_and_harms_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(mesh, "RESUME_S", 0.2)
    other = HIGH if number == LOW else LOW
    async with (
        posted(tmp_path, MIDDLE) as post,
        hand(number, post, MIDDLE) as rogue,
        hand(other, post, MIDDLE) as honest,
    ):
        first, bystander = await rogue.dial(), await honest.dial()
        await until(lambda: len(post.mesh.contacts) == 2)
        for _ in range(3):
            again = await rogue.dial()
            await until(lambda again=again: rogue.is_ended(again))  # type: ignore[misc]
        assert rogue.read[again] == [FrameType.BYE], "nobody listened to it"
        assert not rogue.is_ended(first)
        assert not honest.is_ended(bystander)
        await until(lambda: post.open == 2)
        assert post.ends == []


async def test_forty_dials_at_once_leave_two_links_at_most(tmp_path: Path) -> None:
    async with posted(tmp_path, MIDDLE) as post, hand(LOW, post, MIDDLE) as rogue:
        first = await rogue.dial()
        for _ in range(40):
            await rogue.dial()
        await until(lambda: post.open == 2)
        assert sum(not rogue.is_ended(link) for link in rogue.links) == 2
        assert not rogue.is_ended(first)
        assert post.ends == []


@pytest.mark.parametrize("number", [pytest.param(LOW, id="low"), pytest.param(HIGH, id="high")])
async def test_a_mac_that_was_started_anew_is_told_from_one_with_new_keys(tmp_path: Path, number: int) -> None:
    async with posted(tmp_path, MIDDLE) as post, hand(number, post, MIDDLE) as peer:
        first = await peer.dial()
        await until(lambda: bool(post.mesh.contacts))
        second = await peer.dial()
        await until(lambda: post.open == 2)
        peer.succeed(first, second)
        await until(lambda: FrameType.PING in peer.read[second] and peer.is_ended(first))
        assert (peer.read[first][-2:], post.ends) == ([FrameType.RESUME, FrameType.BYE], [])
        await until(lambda: post.open == 1)  # with two, a third link is refused
        third = await peer.dial()
        await until(lambda: post.open == 2)
        second.close()
        await until(lambda: FrameType.PING in peer.read[third])
        assert post.ends == [(text_id(mac(number).device_id), "It connected again.")]


@pytest.mark.slow
async def test_a_mac_whose_old_link_fell_silent_is_taken_for_one_started_anew(tmp_path: Path) -> None:
    async with posted(tmp_path, MIDDLE) as post, hand(LOW, post, MIDDLE) as peer:
        silent = await peer.dial()
        await until(lambda: bool(post.mesh.contacts))
        peer._readers[0].cancel()  # it answers no more
        await asyncio.gather(peer._readers.pop(0), return_exceptions=True)
        anew = await peer.dial()
        await until(lambda: FrameType.PING in peer.read[anew])
        assert [what for _, what in post.ends] == ["It connected again."]
        assert silent.peer_id == anew.peer_id


async def test_a_resume_to_a_link_that_is_not_there_ends_only_the_line_of_who_said_it(tmp_path: Path) -> None:
    async with (
        posted(tmp_path, MIDDLE) as post,
        hand(LOW, post, MIDDLE) as rogue,
        hand(HIGH, post, MIDDLE) as honest,
    ):
        link, bystander = await rogue.dial(), await honest.dial()
        await until(lambda: len(post.mesh.contacts) == 2)
        link._put(FrameType.RESUME, b"")
        await until(lambda: rogue.is_ended(link))
        await until(lambda: [device for device, _ in post.ends] == [mac(LOW).text_id])
        assert not honest.is_ended(bystander)


async def test_a_goodbye_counts_whatever_stands_aside(tmp_path: Path) -> None:
    async with posted(tmp_path, MIDDLE) as post, hand(LOW, post, MIDDLE) as peer:
        first = await peer.dial()
        await until(lambda: bool(post.mesh.contacts))
        await peer.dial()
        await until(lambda: post.open == 2)
        await first.send(*to_frame(Bye(reason="Updating.")))
        first.close()
        await until(lambda: post.ends == [(mac(LOW).text_id, "Updating.")])
        await until(lambda: mac(LOW).text_id in post.mesh.contacts)


async def test_a_mac_that_closes_the_link_without_a_greeting_may_have_an_older_version(tmp_path: Path) -> None:
    async with posted(tmp_path, MIDDLE) as post, hand(LOW, post, MIDDLE) as peer:
        (await peer.dial()).close()
        await until(lambda: post.ends != [])
        assert "It told no version: if this goes on, update macluster on both Macs." in post.ends[0][1]


@pytest.mark.slow
async def test_a_mac_that_falls_silent_is_suspected_and_then_let_go(tmp_path: Path) -> None:
    async with posted(tmp_path, MIDDLE) as post, hand(LOW, post, MIDDLE) as peer, hand(HIGH, post, MIDDLE) as other:
        await peer.dial()
        bystander = await other.dial()
        await until(lambda: len(post.mesh.contacts) == 2)
        peer._readers[0].cancel()  # it answers no more
        await asyncio.gather(peer._readers.pop(0), return_exceptions=True)
        await until(lambda: post.mesh.is_suspect(mac(LOW).text_id))
        assert post.ends == []
        await until(lambda: post.ends != [])
        ((device_id, what),) = post.ends
        assert device_id == mac(LOW).text_id
        assert what.startswith("No sign of life for")
        assert not other.is_ended(bystander)
        assert not post.mesh.is_suspect(mac(LOW).text_id)


async def test_what_went_over_an_address_that_is_gone_links_again_at_once(tmp_path: Path) -> None:
    async with posted(tmp_path, LOW) as low, posted(tmp_path, HIGH) as high:
        low.book.by_hand(mac(HIGH).text_id, Place(HOST, high.port))
        low.mesh.dialling.reach(mac(HIGH).text_id)
        await until(lambda: low.knows(HIGH) and high.knows(LOW))
        low.signals.emit(NetworksChanged(frozenset({"192.168.1.20"})))
        first = low.mesh.contacts[mac(HIGH).text_id]
        low.signals.emit(NetworksChanged(frozenset({HOST})))
        await until(lambda: low.knows(HIGH) and low.mesh.contacts[mac(HIGH).text_id] is not first)
        assert low.ends == [(mac(HIGH).text_id, "The path to it is gone.")]


@pytest.mark.slow
async def test_a_mac_that_did_not_run_blames_nobody_and_waits_for_new_keys_as_long_as_ever(tmp_path: Path) -> None:
    async with posted(tmp_path, LOW) as low, posted(tmp_path, HIGH) as high:
        low.book.by_hand(mac(HIGH).text_id, Place(HOST, high.port))
        low.mesh.dialling.reach(mac(HIGH).text_id)
        await until(lambda: low.knows(HIGH) and high.knows(LOW))
        before = low.mesh.contacts[mac(HIGH).text_id].changed_at
        time.sleep(3.0)  # noqa: ASYNC251 - neither of the two runs
        await until(lambda: bool(low.said("This Mac did not run for") and high.said("This Mac did not run for")))
        assert low.mesh.contacts[mac(HIGH).text_id].changed_at >= before + 3.0
        assert (low.ends, high.ends) == ([], [])
        assert not low.mesh.is_suspect(mac(HIGH).text_id)


async def test_macs_at_rest_beat_slowly_and_at_once_when_one_begins_to_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mesh, "REST_S", 0.0)
    async with posted(tmp_path, LOW) as low, posted(tmp_path, HIGH) as high:
        low.book.by_hand(mac(HIGH).text_id, Place(HOST, high.port))
        low.mesh.dialling.reach(mac(HIGH).text_id)

        def rest(*posts: Post) -> bool:
            return all(post.mesh._liveness._resting == post.mesh.contacts.keys() != set() for post in posts)

        await until(lambda: rest(low, high) and low.mesh.contacts[mac(HIGH).text_id].rtt_s is not None)
        told = low.mesh.contacts[mac(HIGH).text_id]
        assert told.status == high.own.status(), "told once"
        low.bus.publish(RequestStarted(request_id="r", prompt_tokens=1))
        await until(lambda: not high.mesh._liveness._resting)  # `high` has heard of it
        assert not low.mesh._liveness._resting
        beat = low.mesh.contacts[mac(HIGH).text_id].ping(1.0, told.status, {"a": 1.0}, rests=False, logged=0)
        assert (beat.status, beat.rtts) == (told.status, {"a": 1.0})
        beat = low.mesh.contacts[mac(HIGH).text_id].ping(1.5, told.status, {"a": 1.0}, rests=False, logged=0)
        assert (beat.status, beat.rtts) == (None, {}), "nothing has changed"
        low.bus.publish(RequestDone(request_id="r", finish_reason="stop", prompt_tokens=1, tokens=1))
        await until(lambda: rest(low, high))


@pytest.mark.parametrize("sent", [1e308, 1e9, 0.0], ids=str)
@pytest.mark.promise("P8")
async def test_a_pong_to_a_ping_that_was_never_sent_ends_the_link_and_no_round_trip_comes_of_it(
    tmp_path: Path, sent: float
) -> None:
    async with posted(tmp_path, MIDDLE) as post, hand(LOW, post, MIDDLE) as rogue:
        link = await rogue.dial()
        await until(lambda: bool(post.mesh.contacts))
        contact = post.mesh.contacts[mac(LOW).text_id]
        await link.send(*to_frame(Ping(sent=0.0, answers=sent, status=STATUS)))
        await until(lambda: rogue.is_ended(link))
        assert (contact.rtt_s, contact.status) == (None, None)
        assert not post.tasks.failure


async def test_what_a_later_version_sends_is_ignored_and_told_once_and_the_link_stays(tmp_path: Path) -> None:
    async with posted(tmp_path, MIDDLE) as post, hand(LOW, post, MIDDLE) as peer:
        link = await peer.dial()
        for _ in range(2):
            link._put(FrameType(0x7E), b"?")
            link._put(FrameType.LOG, b'{"type":"LogTold"}')
            link._put(FrameType.PLAN, b'{"type":"Paused","plan_gen":1}')
            await link.send(*to_frame(Release(plan_gen=7, reason="")))
        await until(lambda: len(post.heard) == 2)
        assert post.mesh.ignored == 6
        assert [post.said(words) for words in ("frame 0x7e", "frame 0x23 LogTold", "frame 0x16 Paused")] == [1, 1, 1]
        await until(lambda: peer.read[link].count(FrameType.ERROR) == 2)
        assert (post.ends, peer.is_ended(link)) == ([], False)


async def test_macs_without_a_common_version_stay_linked_for_what_all_versions_know(tmp_path: Path) -> None:
    async with posted(tmp_path, LOW) as low, posted(tmp_path, HIGH) as high:
        later = {"version": "0.3.0", "wire": (2, 3), "installed_by": "pipx"}
        low.mesh.greeting = msgspec.structs.replace(low.mesh.greeting, **later)
        high.mesh.greeting = msgspec.structs.replace(high.mesh.greeting, version="0.1.0", installed_by="uv tool")
        low.book.by_hand(mac(HIGH).text_id, Place(HOST, high.port))
        low.mesh.dialling.reach(mac(HIGH).text_id)
        await until(lambda: low.knows(HIGH) and high.knows(LOW))
        name = low.mesh.contacts[mac(HIGH).text_id].link.peer_name
        apart = low.mesh.why_apart(mac(HIGH).text_id)
        assert apart
        assert apart.what == f"{name} has macluster 0.1.0, this Mac macluster 0.3.0: they can't share a model."
        assert apart.fix == f"On {name}: `uv tool upgrade macluster`, then `macluster restart`."
        theirs = high.mesh.why_apart(mac(LOW).text_id)
        assert theirs
        assert theirs.fix == "On this Mac: `uv tool upgrade macluster`, then `macluster restart`."
        assert high.said(theirs.what) == 1
        table = PeerTable(high.node, high.own, high.worker, high.sightings, high.book, high.mesh)
        table.refresh(mac(LOW).text_id)
        shown = table.find(mac(LOW).text_id)
        assert shown
        assert (shown.state, shown.version) == ("needs an update", "0.3.0")
        assert shown.problem == f"{theirs.what} {theirs.fix}"
        for number in (LOW, MIDDLE):
            claim = Sighting(device_id=mac(number).text_id, name=Clean("m"), version="7.7.7", hosts=(HOST,), port=1)
            table.sighted(claim)
        versions = {peer.device_id: peer.version for peer in high.bus.now.peers}
        assert [versions[mac(number).text_id] for number in (LOW, MIDDLE)] == ["0.3.0", "7.7.7"]
        assert not await low.mesh.send(mac(HIGH).text_id, Release(plan_gen=1, reason=""))
        low.mesh.contacts[mac(HIGH).text_id].is_apart = False  # it sends what it must not
        assert await low.mesh.send(mac(HIGH).text_id, Release(plan_gen=1, reason=""))
        beats = len(low.mesh.contacts[mac(HIGH).text_id]._rtts)
        await until(lambda: len(low.mesh.contacts[mac(HIGH).text_id]._rtts) > beats + 1)
        assert (high.heard, low.ends, high.ends) == ([], [], [])


async def test_a_roster_that_only_a_newer_macluster_reads_is_told_once_and_the_link_stays(tmp_path: Path) -> None:
    async with posted(tmp_path, LOW) as low, posted(tmp_path, HIGH) as high:
        high.mesh.greeting = msgspec.structs.replace(high.mesh.greeting, version="9.0.0")
        low.book.by_hand(mac(HIGH).text_id, Place(HOST, high.port))
        low.mesh.dialling.reach(mac(HIGH).text_id)
        await until(lambda: low.knows(HIGH) and high.knows(LOW))
        assert low.mesh.why_apart(mac(HIGH).text_id) is None
        bundle, stand = high.store.bundle(), high.store.cluster().roster.stand
        later = STAND.pack(stand.epoch + 1, b"h" * 32) + bundle[STAND.size :].replace(b"MCR1", b"MCR2")
        contact = high.mesh.contacts[mac(LOW).text_id]
        for _ in range(2):
            await contact.link.send(FrameType.ROSTER, later)
        await until(lambda: low.mesh.why_apart(mac(HIGH).text_id) is not None)
        table = PeerTable(low.node, low.own, low.worker, low.sightings, low.book, low.mesh)
        table.refresh(mac(HIGH).text_id)
        shown = table.find(mac(HIGH).text_id)
        assert shown
        assert (shown.state, shown.version) == ("needs an update", "9.0.0")
        assert "has macluster 9.0.0, this Mac macluster 0.1.0" in shown.problem
        received = low.mesh.contacts[mac(HIGH).text_id].link._received.use.frames
        await until(lambda: low.mesh.contacts[mac(HIGH).text_id].link._received.use.frames > received + 2)
        assert low.said("they can't share a model") == 1
        assert (low.ends, high.ends) == ([], [])


class Fails(list[NodeMessage]):
    """List that fails by a defect when a message is appended."""

    def append(self, message: NodeMessage) -> None:
        raise KeyError("what a person typed")


@pytest.mark.promise("T4")
async def test_a_message_that_meets_a_defect_ends_that_link_and_is_logged_and_the_node_goes_on(tmp_path: Path) -> None:
    async with posted(tmp_path, LOW) as low, posted(tmp_path, HIGH) as high:
        low.book.by_hand(mac(HIGH).text_id, Place(HOST, high.port))
        low.mesh.dialling.reach(mac(HIGH).text_id)
        await until(lambda: low.knows(HIGH) and high.knows(LOW))
        low.heard = Fails()
        assert await high.mesh.send(mac(LOW).text_id, Release(plan_gen=1, reason=""))
        await until(lambda: low.said("The reader of a link failed by a defect: KeyError at ") == 1)
        await until(lambda: len(low.ends) == len(high.ends) == 1)
        assert low.said("what a person typed") == 0
        assert not low.tasks.failure
        await until(lambda: low.knows(HIGH) and high.knows(LOW))


@pytest.mark.slow
@pytest.mark.promise("P11")
async def test_a_member_that_floods_pings_is_answered_within_its_budget(tmp_path: Path) -> None:
    async with posted(tmp_path, MIDDLE) as post, hand(LOW, post, MIDDLE) as rogue, hand(HIGH, post, MIDDLE) as honest:
        started = time.monotonic()  # it answers the first ping with one of its own
        flood, link = await rogue.dial(), await honest.dial()

        async def ping() -> None:
            while True:
                await flood.send(*to_frame(Ping(sent=0.0)))
                await asyncio.sleep(0.002)  # ten times its budget

        flooding = asyncio.create_task(ping())
        try:
            await until(lambda: honest.read[link].count(FrameType.PING) >= 3)
            answered = rogue.read[flood].count(FrameType.PING)
        finally:
            flooding.cancel()
            await asyncio.wait([flooding])
        assert answered <= BEATS.burst + BEATS.per_s * (time.monotonic() - started) + 1
        assert not rogue.is_ended(flood)


@pytest.mark.slow
@pytest.mark.parametrize("keeps", [False, True], ids=["ends them", "keeps them"])
@pytest.mark.promise("P11")
async def test_a_member_that_dials_all_the_time_keeps_no_other_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps: bool
) -> None:
    # an honest handshake takes milliseconds, except on a busy machine
    monkeypatch.setattr(control_link, "SILENT_S", 60.0)
    monkeypatch.setattr(control_link, "GRACE_S", 60.0)
    async with posted(tmp_path, MIDDLE) as post, hand(LOW, post, MIDDLE) as rogue, hand(HIGH, post, MIDDLE) as honest:

        async def dial() -> None:
            while True:
                with suppress(LinkError):
                    link = await rogue.dial()
                    if not keeps:
                        link.close()

        dialling = [asyncio.create_task(dial()) for _ in range(2 * HANDSHAKES)]
        try:
            await until(lambda: post.accepted > 2 * HANDSHAKES)
            for _ in range(3):
                (await honest.dial()).close()
        finally:
            for task in dialling:
                task.cancel()
            await asyncio.wait(dialling)
