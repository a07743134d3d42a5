"""Dialling Macs over real links: one address after the other; the key shows which Mac answers."""

from __future__ import annotations

import asyncio
import errno
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from core.address import Place
from core.errors import LinkLost
from core.link import control_link, tls_stream
from core.link.connection_admission import MAX_CONTROL_LINKS
from core.link.control_link import ControlLink, dial_control
from core.link.tls import link_error
from core.node.peers import dialling
from core.trust.identity import text_id
from core.trust.roster.bundle import Cluster
from tests.support.dialler import HOST, ME, OTHER, PEER, SIZE, DiallingNode, another_cluster, dialling_node, home_of
from tests.support.macs import cluster, mac
from tests.support.waiting import until

NOWHERE = Place(HOST, 1)
PEER_ID, OTHER_ID = mac(PEER).text_id, mac(OTHER).text_id


@pytest.fixture
async def dialler(tmp_path: Path) -> AsyncIterator[DiallingNode]:
    async with dialling_node(tmp_path) as dialler:
        dialler.pair()
        yield dialler


def strangers() -> Cluster:
    return cluster(SIZE + 1)


async def test_wrong_places_cost_a_failed_dial_each_and_the_right_one_is_remembered(
    dialler: DiallingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialling, "SILENT_S", 60.0)
    async with home_of(PEER) as (right, _), home_of(OTHER) as (wrong, _):
        dialler.sightings.saw(PEER_ID, "studio", (NOWHERE, wrong, right))
        dialler.dialling.reach(PEER_ID)
        await until(lambda: PEER_ID in dialler.links)
        assert dialler.book.of(PEER_ID) == (right, NOWHERE, wrong)
        assert dialler.book.of(OTHER_ID) == (wrong,), "whose key answered there is known too"
        assert dialler.links[PEER_ID].peer_id == mac(PEER).device_id


async def test_a_place_that_is_silent_does_not_keep_the_next_one_waiting(
    dialler: DiallingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialling, "DIAL_S", 1e6)
    with socket.create_server((HOST, 0)) as silent:
        where = Place(*silent.getsockname())
        async with home_of(PEER) as (right, _):
            dialler.sightings.saw(PEER_ID, "studio", (where, right))
            dialler.dialling.reach(PEER_ID)
            await until(lambda: PEER_ID in dialler.links)
            assert dialler.book.of(PEER_ID) == (right, where)


async def test_a_wrong_key_is_what_is_told_and_the_log_says_it_once(dialler: DiallingNode) -> None:
    async with home_of(OTHER, another_cluster) as (wrong, server):
        dialler.sightings.saw(PEER_ID, "studio", (NOWHERE, wrong))
        dialler.dialling.reach(PEER_ID)
        await until(lambda: bool(dialler.dialling.problem(PEER_ID)))
        assert dialler.dialling.problem(PEER_ID).startswith(f"At {wrong}: ")
        assert f"answered where {PEER_ID[:8]} was expected" in dialler.dialling.problem(PEER_ID)
        await until(lambda: server.admission.counts["accepted"] >= 3)
        assert dialler.said("No control link to ") == 1
    assert dialler.links == {}


async def test_the_best_place_is_told_of_where_nobody_answers_and_it_is_forgotten_once_linked(
    dialler: DiallingNode,
) -> None:
    dialler.book.by_hand(PEER_ID, NOWHERE)
    dialler.dialling.reach(PEER_ID)
    await until(lambda: dialler.dialling.problem(PEER_ID) == f"Nothing listens at {HOST} port 1.")
    async with home_of(PEER) as (right, _):
        dialler.sightings.saw(PEER_ID, "studio", (right,))
        await until(lambda: PEER_ID in dialler.links)
        assert dialler.dialling.problem(PEER_ID) == ""


async def test_a_place_without_an_id_is_tried_until_this_mac_is_paired_and_links_whoever_is_there(
    tmp_path: Path,
) -> None:
    async with home_of(PEER) as (place, _), dialling_node(tmp_path, place) as dialler:
        dialler.dialling.roster_changed()
        await until(lambda: dialler.said("paired with no other") == 1)
        dialler.pair()
        await until(lambda: PEER_ID in dialler.links)
        assert dialler.book.of(PEER_ID) == (place,)
        assert dialler.book.unclaimed == ()


async def test_a_stranger_at_a_place_without_an_id_is_said_once_and_called_rarely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialling, "STRANGER_S", 0.01)
    async with home_of(SIZE, strangers) as (place, server), dialling_node(tmp_path, place) as dialler:
        dialler.pair()
        await until(lambda: server.admission.counts["accepted"] >= 4)
        assert dialler.said(str(place)) == 1
        assert dialler.links == {}


async def test_a_mac_that_is_linked_is_met_at_another_place_without_a_second_link(tmp_path: Path) -> None:
    async with (
        home_of(PEER) as (first, _),
        home_of(PEER) as (second, server),
        dialling_node(tmp_path, second) as dialler,
    ):
        dialler.links[PEER_ID] = await linked(first)
        dialler.pair()
        await until(lambda: second not in dialler.book.unclaimed)
        await until(lambda: server.admission.counts["failed_hello"] == 1)
        assert dialler.book.of(PEER_ID) == (second,)
        assert not dialler.said(str(second))


async def linked(place: Place) -> ControlLink:
    return await dial_control(
        *place, identity=mac(ME), cluster=cluster(SIZE), peer_id=mac(PEER).device_id, timeout_s=60.0
    )


async def end(link: ControlLink) -> None:
    link.close()
    await link.wait_closed()


async def test_a_mac_that_is_no_member_is_not_dialled(dialler: DiallingNode) -> None:
    dialler.book.by_hand(text_id(b"s" * 16), NOWHERE)
    dialler.dialling.reach(text_id(b"s" * 16))
    assert dialler.dialling.problem(text_id(b"s" * 16)) == ""
    assert not [t for t in asyncio.all_tasks() if t.get_name().startswith("dial")]


# ---- admission


async def test_what_becomes_of_those_who_knock_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.link.control_link.TLS_TIMEOUT_S", 0.2)
    async with home_of(PEER) as (place, server), AsyncExitStack() as stack:
        stack.push_async_callback(end, await linked(place))
        for says in (b"", b"GET / HTTP/1.1\r\n\r\n"):
            reader, writer = await asyncio.open_connection(*place)
            stack.callback(writer.close)
            writer.write(says)
            assert await asyncio.wait_for(reader.read(), 10) in (b"", b"\x15\x03\x01\x00\x02\x02\x46")
        counts = server.admission.counts
        await until(lambda: counts["timed_out"] + counts["failed_tls"] == 2)
        assert dict(counts) == {"accepted": 3, "timed_out": 1, "failed_tls": 1}


async def test_a_mac_with_all_its_links_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_link, "PEER_LINKS", MAX_CONTROL_LINKS)  # one Mac dials here for many
    async with home_of(PEER) as (place, server), AsyncExitStack() as stack:
        for _ in range(MAX_CONTROL_LINKS):
            stack.push_async_callback(end, await linked(place))
        await until(lambda: len(server._links) == MAX_CONTROL_LINKS)
        reader, writer = await asyncio.open_connection(*place)
        stack.callback(writer.close)
        assert await asyncio.wait_for(reader.read(), 10) == b""
        assert (server.admission.counts["refused_full"], server.admission.counts["accepted"]) == (1, MAX_CONTROL_LINKS)
        await stack.aclose()
        await until(lambda: not server._links)
        await end(await linked(place))


def test_only_on_a_mac_no_route_means_that_the_network_was_not_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    error = OSError(errno.EHOSTUNREACH, "No route to host")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "Local Network" in dialling._problem_text(link_error(error, "mini"))
    monkeypatch.setattr(sys, "platform", "linux")
    assert dialling._problem_text(link_error(error, "mini")) == "The link to mini broke: No route to host."


async def test_a_mac_at_the_end_of_a_cable_that_this_one_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_stream, "interfaces", tuple)
    with pytest.raises(LinkLost, match=r"169\.254\.1\.2 is at the other end of a cable that this Mac does not have"):
        await dial_control(
            "169.254.1.2", 1, identity=mac(ME), cluster=cluster(SIZE), peer_id=mac(PEER).device_id, timeout_s=60.0
        )
