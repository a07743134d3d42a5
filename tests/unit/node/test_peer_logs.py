"""This Mac's log merged with those of others: when they are requested, the order of the lines, and their names."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.events import Peer, PeerSeen
from core.node.base import journal
from core.node.base.bus import Bus
from core.node.base.journal import Journal
from core.node.base.node_message import to_frame
from core.node.peers import peer_logs
from core.node.peers.messages import MAX_LOG_LINES, LogEntry, LogMessage, LogReply, LogRequest
from core.node.peers.peer_logs import ANSWER_S, PeerLog, PeerLogs
from tests.support.contexts import context_of
from tests.support.node_messages import from_frame
from tests.support.plans import mac_id
from tests.support.waiting import until

A, B = mac_id(0), mac_id(1)
NAMES = {A: "anna", B: "bert"}


def told(now: float, *at: float) -> LogReply:
    lines = tuple(LogEntry(at=each, level="INFO", text=f"{each}") for each in at)
    return LogReply(run=7, last=len(at), now=now, lines=lines)


# ---- one log


@given(
    ahead_s=st.floats(-1e6, 1e6), ways=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=12)
)
def test_a_line_stands_where_it_was_written_give_or_take_half_the_shortest_round_trip(
    ahead_s: float, ways: list[tuple[float, float]]
) -> None:
    """The other Mac's clock shows `ahead_s` more; this one's wall clock shows 2e6 more than its monotonic one."""
    log, now_s = PeerLog(), 100.0
    for out_s, home_s in ways:
        assert log.ask(now_s)
        asked_at = now_s + out_s + 2e6
        written = asked_at - 30.0
        now_s += out_s + home_s
        ((at, _),) = log.take(told(asked_at + ahead_s, written + ahead_s), now_s, now_s + 2e6)
    last = ways[-peer_logs.CLOCKS_KEPT :]
    assert abs(at - written) <= min(out_s + home_s for out_s, home_s in last) / 2 + 1e-5


@pytest.mark.promise("P30")
def test_no_line_is_still_to_come_whatever_a_mac_says() -> None:
    log = PeerLog()
    log.ask(0.0)
    assert [at for at, _ in log.take(told(0.0, 1e11, 0.0), 0.1, 5000.0)] == [5000.0, pytest.approx(5000.0, abs=0.1)]
    log.ask(1.0)
    assert [at for at, _ in log.take(told(1e11, 0.0), 1.01, 5001.0)] == [0.0]


def test_a_mac_is_asked_for_what_comes_next_and_not_before_it_answered() -> None:
    log = PeerLog()
    assert log.ask(0.0) == LogRequest(run=0, after=0)
    assert log.ask(1.0) is None
    assert log.ask(ANSWER_S) == LogRequest(run=0, after=0)  # the answer was lost with a link
    assert len(log.take(told(9.0, 8.0), ANSWER_S, 9.0)) == 1
    assert log.take(told(9.0, 8.0), ANSWER_S, 9.0) == []  # an unrequested answer
    assert log.ask(ANSWER_S) == LogRequest(run=7, after=1)
    log.gone()
    assert log.take(told(9.0, 8.0), ANSWER_S, 9.0) == []
    assert log.ask(ANSWER_S) == LogRequest(run=7, after=1)


# ---- two Macs


class Link:
    """The part of a mesh that a PeerLogs needs; messages are encoded and decoded as on the wire."""

    def __init__(self, own: str, other: str) -> None:
        self.own, self.contacts = own, {other: SimpleNamespace(logged=0)}
        self.said: list[LogMessage] = []
        self.peer: PeerLogs

    async def send(self, device_id: str, message: LogMessage) -> bool:
        self.said.append(message)
        heard: Any = from_frame(*to_frame(message))
        await self.peer.handle_message(self.own, heard)
        return True


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[Bus, Journal, PeerLogs, Link]]:
    """Two Macs whose clocks agree; a second passes from line to line."""
    monkeypatch.setattr(peer_logs, "ASK_EVERY_S", 0.01)
    clock = SimpleNamespace(time=count(time.time() - 1000.0).__next__)
    monkeypatch.setattr(journal, "time", clock)
    macs = {}
    for own, other in ((A, B), (B, A)):
        bus, link = Bus(), Link(own, other)
        written, mesh = Journal(tmp_path / own, NAMES[own], bus), link
        for each in NAMES:
            bus.publish(PeerSeen(peer=Peer(device_id=each, name=NAMES[each], is_self=each == own)))
        logs: Any = PeerLogs(context_of(bus=bus, journal=written), mesh)  # type: ignore[arg-type]
        macs[own] = bus, written, logs, link
    macs[A][3].peer, macs[B][3].peer = macs[B][2], macs[A][2]
    return macs


@pytest.mark.promise("P30")
async def test_who_reads_sees_the_lines_of_all_macs_in_order_under_their_names_and_nobody_else_does(
    two: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus, anna, logs, link = two[A]
    rounds: list[float] = []

    async def sleep(seconds: float) -> None:
        rounds.append(seconds)
        link.contacts[B].logged = bert.written  # a beat says it
        await asyncio.sleep(seconds)

    monkeypatch.setattr(peer_logs, "next_look", sleep)
    _, bert, _, _ = two[B]
    said = ["a first", "b \x1bsecond", "a third", *(f"b {n}" for n in range(2 * MAX_LOG_LINES))]
    for text in said:
        (anna if text.startswith("a ") else bert).info(text)
    watching = asyncio.create_task(logs.watch())
    try:
        await asyncio.sleep(0)
        assert link.said == []  # no screen shows the log
        with logs.read():
            await until(lambda: len(bus.now.logs) == len(said))
            bert.warn("one more")
            await until(lambda: len(bus.now.logs) == len(said) + 1)
            seen, asked = len(rounds), len(link.said)
            await until(lambda: len(rounds) > seen + 5)
            assert len(link.said) == asked, "there is nothing new"
        seen = len(rounds)
        await until(lambda: len(rounds) > seen + 1)  # the last request is sent
        asked = len(link.said)
        await until(lambda: len(rounds) > seen + 5)
        assert len(link.said) == asked
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
    lines = bus.now.logs
    assert [line.text for line in lines] == [*(text.replace("\x1b", "") for text in said), "one more"]
    assert {line.source for line in lines if line.text.startswith("b")} == {"bert"}
    assert (lines[-1].source, lines[-1].level) == ("bert", "WARN")
    assert [line.source for line in two[B][0].now.logs] == ["bert"] * (2 * MAX_LOG_LINES + 2)
    assert max(len(each.lines) for each in two[B][3].said if isinstance(each, LogReply)) == MAX_LOG_LINES


async def test_a_mac_that_was_started_anew_is_read_from_its_first_line(two: Any) -> None:
    bus, _, _, link = two[A]
    two[B][1].info("new life")
    asked = LogRequest(run=two[B][1].run ^ 1, after=1000)
    await two[B][2].handle_message(A, asked)
    assert [each.text for each in msgspec.structs.asdict(two[B][3].said[-1])["lines"]] == ["new life"]
    assert (bus.now.logs, link.said) == ((), [])  # it had not asked
