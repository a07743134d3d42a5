"""Speed tests of links: messages in flight, the measured figures, permission, and the amount sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from core.errors import Busy, LinkLost, LinkTimeout, MaclusterError, NodeError, NotPaired, ProtocolError, UsageError
from core.events import Level, Peer, PeerSeen, Progress
from core.link.frames import FrameType
from core.node.base.bus import Bus
from core.node.base.journal import Journal
from core.node.base.node_message import NodeMessage, to_frame
from core.node.base.signals import Signals
from core.node.peers import link_probe, speed_test
from core.node.peers.addresses import AddressBook
from core.node.peers.advertised_macs import AdvertisedMacs
from core.node.peers.link_probe import (
    FRAME_BYTES,
    FRAMES,
    MAX_UNDER_WAY,
    PROBES,
    QUEUE_S,
    ROUND_TRIPS,
    Extent,
    LinkProbing,
    next_window,
)
from core.node.peers.linked_mac import LinkedMac
from core.node.peers.messages import (
    LinkProbe,
    PeerSpeedRequest,
    Probed,
    SpeedMessage,
    SpeedMoved,
    SpeedResultSent,
    SpeedStop,
)
from core.node.peers.networks import Networks
from core.node.peers.paths import Paths
from core.node.peers.speed_test import ANSWERS, SpeedTests
from core.requests.checks import SpeedRequest, SpeedResult
from core.settings import MAX_CONTROL_BODY
from tests.support.contexts import context_of
from tests.support.node_messages import from_frame
from tests.support.plans import mac_id
from tests.support.tasks import tasks_of
from tests.support.waiting import until

A, B, C = (mac_id(n) for n in range(3))
NAMES = {A: "anna", B: "bert", C: "carl"}
FOUND = SpeedResult(
    source=B,
    target=C,
    rtt_s=0.002,
    rtt_min_s=0.001,
    round_trips=20,
    loaded_rtt_s=0.01,
    frames=2,
    bytes=98304,
    seconds=1,
)


# ---- messages and the window


@pytest.mark.parametrize(
    ("window", "delay_s", "then"),
    [
        pytest.param(1, 0.001, 2, id="no queue: one more"),
        pytest.param(4, 0.001 + QUEUE_S, 5, id="still none"),
        pytest.param(4, 0.002 + QUEUE_S, 3, id="a queue: one less"),
        pytest.param(1, 9.0, 1, id="never none"),
        pytest.param(MAX_UNDER_WAY, 0.001, MAX_UNDER_WAY, id="never more than that"),
    ],
)
def test_the_window_follows_the_queue(window: int, delay_s: float, then: int) -> None:
    assert next_window(window, delay_s, 0.001) == then


def test_a_full_message_fits_a_control_frame() -> None:
    kind, body = to_frame(LinkProbe(number=1, size=FRAME_BYTES))
    assert (kind, len(body) <= MAX_CONTROL_BODY) == (FrameType.PROBE, True)


@pytest.mark.parametrize(
    "cut",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"1234567", id="short"),
        pytest.param(b"\x00" * 9, id="one more"),
        pytest.param(to_frame(LinkProbe(number=1, size=64))[1][:-1], id="one less"),
    ],
)
def test_a_probe_that_holds_something_else_than_it_says_is_refused(cut: bytes) -> None:
    with pytest.raises(ProtocolError):
        from_frame(FrameType.PROBE, cut)


# ---- one measurement


async def probed(
    answer: Callable[[LinkProbe, LinkProbing], Awaitable[bool]],
    moved: Callable[[int], None] = lambda _: None,
    extent: Extent = link_probe.TEST,
) -> link_probe.ProbeFigures:
    async def send(probe: LinkProbe) -> bool:
        return await answer(probe, measuring)

    measuring = LinkProbing("bert", send, moved, extent)
    return await measuring.run()


async def test_what_comes_back_is_counted_and_no_more_is_under_way_than_the_window() -> None:
    under_way, most = 0, 0
    done: list[int] = []

    async def later(probe: LinkProbe, measuring: LinkProbing) -> bool:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)

        def back() -> None:
            nonlocal under_way
            under_way -= 1
            measuring.handle_reply(probe.number)
            measuring.handle_reply(probe.number)  # the second reply has no effect

        asyncio.get_running_loop().call_later(0.001, back)
        return True

    found = await probed(later, done.append)
    assert (len(found.rtts_s), len(found.loaded_s)) == (ROUND_TRIPS, FRAMES)
    assert found.bytes == FRAMES * FRAME_BYTES
    assert min(found.rtts_s) > 0
    assert found.seconds >= max(found.loaded_s)
    assert 1 < most <= MAX_UNDER_WAY
    assert done == list(range(1, PROBES + 1))


async def test_a_mac_that_does_not_answer_or_goes_away_is_said() -> None:
    async def silent(probe: LinkProbe, measuring: LinkProbing) -> bool:
        return True

    async def unlinked(probe: LinkProbe, measuring: LinkProbing) -> bool:
        return False

    async def leaving(probe: LinkProbe, measuring: LinkProbing) -> bool:
        measuring.lost()
        return True

    for answer, kind in ((silent, LinkTimeout), (unlinked, LinkLost), (leaving, LinkLost)):
        with pytest.raises(kind, match="bert"):
            await probed(answer, extent=Extent(limit_s=0.05))


async def test_a_slow_link_is_judged_by_what_came_back_in_time() -> None:
    async def slow(probe: LinkProbe, measuring: LinkProbing) -> bool:
        if probe.size == 0 or probe.number < ROUND_TRIPS + 3:
            measuring.handle_reply(probe.number)
        return True

    found = await probed(slow, extent=Extent(limit_s=0.2))
    assert (len(found.rtts_s), len(found.loaded_s)) == (ROUND_TRIPS, 3)
    assert found.seconds < 0.2, "the wait for what never came is no part of it"


# ---- three Macs


class Macs:
    """Linked nodes without sockets. `cut` has pairs that are not linked."""

    def __init__(self, folder: Path) -> None:
        self.said: list[tuple[str, str, NodeMessage]] = []
        self.cut: set[frozenset[str]] = set()
        self.deaf: set[str] = set()
        self.buses = {mac: Bus() for mac in NAMES}
        self.tasks = {mac: tasks_of(Journal(folder / mac, mac, self.buses[mac])) for mac in NAMES}
        self.speeds = {
            mac: SpeedTests(context_of(own_id=mac, bus=self.buses[mac], tasks=self.tasks[mac]), line, no_paths(line))
            for mac in NAMES
            for line in (cast(Any, FakeMesh(self, mac)),)
        }
        for own, bus in self.buses.items():
            for mac in NAMES:
                self.sees(bus, mac, own == mac, "paired")

    def sees(self, bus: Bus, mac: str, is_self: bool, trust: Level) -> None:
        peer = Peer(device_id=mac, name=NAMES[mac], is_self=is_self, trust=trust, state="connected")
        bus.publish(PeerSeen(peer=peer))

    def sent(self, mac: str, kind: type) -> int:
        return sum(who == mac and isinstance(message, kind) for who, _, message in self.said)

    async def test(self, target: str, source: str = "") -> SpeedResult:
        return await self.speeds[A].test(SpeedRequest(source=source, target=target))


def no_paths(line: Any) -> Paths:
    """Paths without known addresses."""
    nobody, networks = AddressBook(AdvertisedMacs(lambda _: True)), Networks("127.0.0.1", Signals())
    return Paths(cast(Any, None), cast(Any, None), line, networks, nobody)


class FakeMesh:
    """The part of a mesh that a speed test needs; messages are encoded and decoded as on the wire."""

    contacts: Mapping[str, LinkedMac] = {}

    def __init__(self, macs: Macs, own: str) -> None:
        self._macs, self._own = macs, own

    def local_host_of(self, device_id: str) -> str:
        return "127.0.0.1"

    async def send(self, device_id: str, message: SpeedMessage) -> bool:
        if device_id not in NAMES or {device_id, self._own} in self._macs.cut or device_id == self._own:
            return False
        self._macs.said.append((self._own, device_id, message))
        if device_id not in self._macs.deaf:
            heard = from_frame(*to_frame(message))
            await asyncio.sleep(0)
            await self._macs.speeds[device_id].handle_message(self._own, heard)  # type: ignore[arg-type]
        return True


@pytest.fixture
async def macs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Macs]:
    monkeypatch.setattr(speed_test, "REST_S", 0.0)
    found = Macs(tmp_path)
    yield found
    for tasks in found.tasks.values():
        await tasks.stop()


async def test_a_hop_of_this_mac_and_one_between_two_others(macs: Macs) -> None:
    own = await macs.test("bert")
    assert (own.source, own.target, own.round_trips, own.frames, own.answering) == (A, B, ROUND_TRIPS, FRAMES, False)
    assert own.via == "loopback"
    assert own.bytes_per_s == own.bytes / own.seconds
    other = await macs.test(source=B[:6], target="CARL")
    assert (other.source, other.target, other.frames) == (B, C, FRAMES)
    assert macs.sent(C, Probed) == PROBES


async def test_progress_is_told_and_does_not_flood_whoever_looks(macs: Macs) -> None:
    seen: list[Progress] = []
    publish = macs.buses[A].publish

    def note(event: object) -> None:
        if isinstance(event, Progress):
            seen.append(event)
        publish(event)  # type: ignore[arg-type]

    macs.buses[A].publish = note  # type: ignore[method-assign]
    await macs.test(source="bert", target="carl")
    assert (seen[0].done, seen[-1].done, {e.total for e in seen}) == (0, PROBES, {PROBES})
    assert all(before.done <= after.done for before, after in pairwise(seen))
    assert len(seen) < 20


async def test_what_cannot_be_tested_is_said(macs: Macs) -> None:
    macs.sees(macs.buses[A], C, False, "seen")
    macs.cut.add(frozenset({A, B}))
    for words, kind, said in (
        ({"target": "carl"}, NotPaired, "carl is seen"),
        ({"target": "nobody"}, UsageError, "nobody"),
        ({"target": "anna"}, UsageError, "two ends"),
        ({"target": "bert"}, LinkLost, "bert is not linked"),
        ({"source": "bert", "target": "anna"}, LinkLost, "bert is not linked"),
    ):
        with pytest.raises(kind, match=said):
            await macs.speeds[A].test(SpeedRequest(**words))
    macs.cut = {frozenset({B, C})}
    macs.sees(macs.buses[A], C, False, "paired")
    with pytest.raises(LinkLost, match="carl is not linked"):
        await macs.test(source="bert", target="carl")


async def under_way(macs: Macs, source: str = "") -> asyncio.Task[SpeedResult]:
    """A test that waits for an answer which does not come."""
    macs.deaf.add(C)
    test = asyncio.create_task(macs.test("carl", source))
    await until(lambda: any(to == C for _, to, _ in macs.said))
    return test


@pytest.mark.parametrize("source", ["", "bert"])
async def test_one_at_a_time_and_a_person_can_stop_it(macs: Macs, source: str) -> None:
    test = await under_way(macs, source)
    with pytest.raises(Busy):
        await macs.test("bert")
    await macs.speeds[A].stop()
    with pytest.raises(NodeError, match="stopped"):
        await test
    await until(lambda: not any(each._test for each in macs.speeds.values()))
    macs.deaf.clear()
    assert (await macs.test("carl")).frames == FRAMES


@pytest.mark.parametrize(("source", "lost", "said"), [("", C, "carl went away"), ("bert", B, "bert went away")])
async def test_a_mac_that_is_lost_ends_it(macs: Macs, source: str, lost: str, said: str) -> None:
    test = await under_way(macs, source)
    macs.speeds[A].gone(lost)
    with pytest.raises(LinkLost, match=said):
        await test


async def test_whoever_asked_and_is_gone_is_measured_for_no_more(macs: Macs) -> None:
    test = await under_way(macs, "bert")
    assert macs.speeds[B]._test
    macs.speeds[B].gone(A)
    with pytest.raises(NodeError):
        await test
    assert macs.speeds[B]._test is None


async def test_a_defect_while_measuring_is_told_to_whoever_asked(macs: Macs, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: str) -> str:
        raise KeyError("en0")

    monkeypatch.setattr(speed_test, "link_kind", failing)
    with pytest.raises(NodeError, match="failed by a defect on bert"):
        await macs.test("carl", "bert")
    assert any("A speed test failed by a defect: KeyError" in line.text for line in macs.buses[B].now.logs)


# ---- a paired Mac that turned hostile


@pytest.mark.promise("P28")
async def test_nobody_can_have_a_mac_send_without_end(macs: Macs) -> None:
    for number in range(200):
        await macs.speeds[B].handle_message(
            A, PeerSpeedRequest(test=number, target=C)
        )  # without a pause: they lie in one buffer
    await until(lambda: macs.speeds[B]._test is None)
    assert macs.sent(B, LinkProbe) == PROBES, "one test, and a refusal for every other ask"
    assert macs.sent(B, SpeedResultSent) >= 199


async def test_answers_to_probes_are_rationed_and_smaller_than_those(macs: Macs) -> None:
    for number in range(5 * int(ANSWERS.burst)):
        await macs.speeds[B].handle_message(A, LinkProbe(number=number, size=0))
    assert ANSWERS.burst <= macs.sent(B, Probed) < 2 * ANSWERS.burst
    answers = [message for _, _, message in macs.said if isinstance(message, Probed)]
    assert all(len(to_frame(answer)[1]) < 64 for answer in answers)
    await macs.speeds[B].handle_message(C, LinkProbe(number=1, size=0))
    assert macs.said[-1][1] == C, "another Mac is answered all the same"


async def test_words_about_tests_that_do_not_run_change_nothing(macs: Macs) -> None:
    test = await under_way(macs, "bert")
    for word in (SpeedResultSent(test=1, result=FOUND), SpeedMoved(test=1, done=1 << 50), SpeedStop(test=1)):
        await macs.speeds[A].handle_message(C, word)
    for number in (0, 2, 1 << 40):
        await macs.speeds[A].handle_message(B, SpeedResultSent(test=number, result=FOUND))
    assert not test.done()
    await macs.speeds[A].handle_message(B, SpeedResultSent(test=1, result=FOUND))
    assert (await test).rtt_s == FOUND.rtt_s
    await macs.speeds[A].handle_message(B, SpeedResultSent(test=1))


@pytest.mark.parametrize("field", ["rtt_s", "seconds", "bytes", "frames"])
def test_figures_that_no_test_has_are_refused(field: str) -> None:
    body = msgspec.json.encode({"type": "SpeedTold", "test": 1, "result": {**msgspec.structs.asdict(FOUND), field: -1}})
    with pytest.raises(ProtocolError):
        from_frame(FrameType.SPEED_TEST, body)


async def test_a_mac_that_measures_answers_no_probes(macs: Macs) -> None:
    test = await under_way(macs)
    await macs.speeds[A].handle_message(B, LinkProbe(number=1, size=0))
    assert macs.sent(A, Probed) == 0
    await macs.speeds[A].stop()
    with pytest.raises(MaclusterError):
        await test
