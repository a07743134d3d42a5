import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import (
    HandshakeError,
    LinkError,
    LinkLost,
    LinkTimeout,
    NotPaired,
    OtherVersion,
    PortTaken,
    ProtocolError,
    SealError,
)
from core.link import control_handshake, control_link, tls_stream
from core.link.connection_admission import ConnectionAdmission
from core.link.control_link import ControlLink, dial_control, serve_control
from core.link.frames import HEADER, FrameHeader, FrameType
from core.link.session import Acceptor
from core.link.tls import client_context
from core.settings import MAX_CONTROL_BODY
from core.trust.roster.bundle import Cluster
from core.trust.roster.store import RosterStore
from tests.support.control_links import HOST, LinkListener, soon
from tests.support.macs import bundle, chain, cluster, mac


@pytest.fixture
async def listener() -> AsyncIterator[LinkListener]:
    listener = LinkListener()
    listener.server = await serve_control(
        HOST, 0, identity=mac(1), cluster=lambda: listener.knows(), on_link=listener.take
    )
    yield listener
    listener.server.close()
    await listener.server.wait_closed()
    for link in listener.open:
        link.close()
    await asyncio.gather(*(link.wait_closed() for link in listener.open))


async def test_messages_flow_both_ways_at_once(listener: LinkListener) -> None:
    near, far = await listener.pair()
    assert (near.peer_id, far.peer_id, far.remote_host) == (mac(1).device_id, mac(0).device_id, HOST)
    assert (near.local_host, far.local_host) == (HOST, HOST)
    assert not near.epochs_differ
    await asyncio.gather(*(near.send(FrameType.PING, b"%d" % n) for n in range(20)))
    await far.send(FrameType.PLAN, bytes(MAX_CONTROL_BODY))
    assert [await soon(far.recv()) for _ in range(20)] == [(FrameType.PING, b"%d" % n) for n in range(20)]
    assert await soon(near.recv()) == (FrameType.PLAN, bytes(MAX_CONTROL_BODY))


async def test_nagle_is_off_at_both_ends(listener: LinkListener) -> None:
    for link in await listener.pair():
        sock = link._wire._writer.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_a_message_beyond_the_limit_is_refused_by_both_sides(listener: LinkListener) -> None:
    near, far = await listener.pair()
    with pytest.raises(ProtocolError, match="beyond"):
        await near.send(FrameType.PLAN, bytes(MAX_CONTROL_BODY + 1))
    near._wire.write(bytes(near._sealer.seal(FrameType.PLAN, parts=[bytes(MAX_CONTROL_BODY + 1)])))
    with pytest.raises(ProtocolError, match="65553 bytes"):
        await soon(far.recv())
    with pytest.raises(LinkLost):
        await soon(near.recv())


async def test_a_header_that_claims_1_gib_closes_the_link(listener: LinkListener) -> None:
    near, far = await listener.pair()
    near._wire.write(HEADER.pack(b"MC", 1, *FrameHeader(FrameType.PLAN, 0, 0, 0, 1 << 30, 0, 1, bytes(16), 0, 0, 0, 0)))
    with pytest.raises(ProtocolError):
        await soon(far.recv())


async def test_a_changed_frame_closes_the_link(listener: LinkListener) -> None:
    near, far = await listener.pair()
    frame = bytearray(near._sealer.seal(FrameType.PLAN, parts=[b"plan"]))
    frame[50] ^= 1
    near._wire.write(bytes(frame))
    with pytest.raises(SealError):
        await soon(far.recv())
    with pytest.raises(LinkLost):
        await far.send(FrameType.ACK, b"")


async def test_the_end_of_a_link_is_seen_and_what_was_sent_before_arrives(listener: LinkListener) -> None:
    near, far = await listener.pair()
    await near.send(FrameType.BYE, b"going")
    near.close()
    assert await soon(far.recv()) == (FrameType.BYE, b"going")
    with pytest.raises(LinkLost):
        await soon(far.recv())
    await soon(near.wait_closed())
    with pytest.raises(LinkLost):
        await soon(near.recv())


async def test_what_still_comes_in_after_this_ends_goodbye_says_nothing_against_the_other_one(
    listener: LinkListener,
) -> None:
    near, far = await listener.pair()
    hearing = asyncio.create_task(near.recv())
    await asyncio.sleep(0)
    far._put(FrameType.PING, b"on its way")
    near.close()
    with pytest.raises(LinkLost, match=r"The link to .* is closed|closed the link"):
        await soon(hearing)
    await soon(near.wait_closed())


async def test_a_recv_that_was_cancelled_in_the_middle_of_a_frame_loses_nothing(listener: LinkListener) -> None:
    near, far = await listener.pair()
    frame = bytes(near._sealer.seal(FrameType.PLAN, parts=[b"plan"]))
    near._wire.write(frame[:60])
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(far.recv(), 0.1)
    near._wire.write(frame[60:])
    assert await soon(far.recv()) == (FrameType.PLAN, b"plan")


# ---- admission


async def test_another_cluster_and_strangers_are_refused(listener: LinkListener) -> None:
    with pytest.raises(LinkError):
        await listener.dial(knows=cluster(3, b"D" * 16))
    listener.knows = lambda: cluster(2)
    with pytest.raises(LinkError):
        await listener.dial(2)
    assert listener.links.empty()


async def test_the_dialler_wants_one_mac_only(listener: LinkListener) -> None:
    with pytest.raises(HandshakeError, match="was expected"):
        await listener.dial(expects=2)


async def test_a_mac_that_begins_links_in_a_later_version_is_refused_with_both_versions(
    listener: LinkListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Later(Acceptor):
        def reply(self, m1: bytes) -> bytes:
            self.hello = self.hello[:4] + b"\x02" + self.hello[5:]
            raise OtherVersion("It begins links in version 1, this Mac in version 2.")

    monkeypatch.setattr(control_handshake, "Acceptor", Later)
    with pytest.raises(OtherVersion, match=r"in version 2, this Mac in version 1\. Update macluster on this Mac\."):
        await listener.dial()


async def test_a_newer_roster_that_crosses_the_answer_to_the_one_before_ends_no_link(listener: LinkListener) -> None:
    def roster(macs: int) -> bytes:
        return bundle(chain(macs), *(mac(n).certificate_der for n in range(macs)))

    listener.knows = lambda: cluster(2)
    near, far = await listener.pair(knows=cluster(3))
    await near.send(FrameType.ROSTER, roster(4))
    await far.send(FrameType.ROSTER, roster(3))  # it has not read that one yet
    await far.send(FrameType.PING, b"equal")
    assert [(await soon(near.recv()))[0] for _ in range(2)] == [FrameType.ROSTER, FrameType.PING]
    await near.send(FrameType.PING, b"to me, too")
    assert [(await soon(far.recv()))[0] for _ in range(2)] == [FrameType.ROSTER, FrameType.PING]


async def test_a_greeting_comes_before_the_rosters_are_equal(listener: LinkListener, stores: list[RosterStore]) -> None:
    listener.knows = stores[1].cluster
    near, far = await listener.pair(knows=stores[0].cluster())
    await near.send(FrameType.GREETING, b"hello")
    assert await soon(far.recv()) == (FrameType.GREETING, b"hello")


async def test_two_sides_of_a_fork_may_talk_about_rosters_only(listener: LinkListener) -> None:
    fork = msgspec.structs.replace(cluster(3).roster, sig=bytes(64))
    near, far = await listener.pair(knows=Cluster(fork, cluster(3).certificates))
    assert (near.epochs_differ, far.epochs_differ) == (True, True)
    assert (near.peer_stand, far.peer_stand) == (cluster(3).roster.stand, fork.stand)
    near._put(FrameType.PLAN, b"plan")
    with pytest.raises(ProtocolError, match="before the rosters were equal"):
        await soon(far.recv())


async def test_a_mac_that_was_never_paired_answers_nobody(listener: LinkListener) -> None:
    def nobody() -> Cluster:
        raise NotPaired("This Mac is paired with no other.")

    listener.knows = nobody
    with pytest.raises(LinkError):
        await listener.dial()


async def test_a_new_roster_counts_for_the_next_connection(listener: LinkListener) -> None:
    listener.knows = lambda: cluster(2)
    with pytest.raises(LinkError):
        await listener.dial(2)
    listener.knows = lambda: cluster(3)
    await listener.pair(me=2)


async def test_absent_and_silent_macs(listener: LinkListener) -> None:
    def call(port: int) -> Awaitable[ControlLink]:
        return dial_control(HOST, port, identity=mac(0), cluster=cluster(), peer_id=mac(1).device_id, timeout_s=0.2)

    with pytest.raises(LinkLost, match="Nothing listens"):
        await call(1)
    with socket.create_server((HOST, 0)) as silent, pytest.raises(LinkTimeout):
        await call(silent.getsockname()[1])


async def test_an_address_in_use_is_said(listener: LinkListener) -> None:
    with pytest.raises(PortTaken, match=f"is in use by .*pid {os.getpid()}"):
        await serve_control(HOST, listener.port, identity=mac(1), cluster=listener.knows, on_link=listener.take)


async def test_junk_and_silence_are_sent_away_and_do_not_block(
    listener: LinkListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_link, "TLS_TIMEOUT_S", 0.2)
    async with contextlib.AsyncExitStack() as stack:
        readers = []
        for says in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", bytes(500)):
            reader, writer = await asyncio.open_connection(HOST, listener.port)
            stack.callback(writer.close)
            writer.write(says)
            readers.append(reader)
        await listener.pair()
        for reader in readers:
            with contextlib.suppress(OSError):
                await soon(reader.read())


async def test_a_member_who_stalls_after_tls_is_sent_away(
    listener: LinkListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_link, "HELLO_TIMEOUT_S", 0.1)
    reader, writer = await asyncio.open_connection(
        HOST, listener.port, ssl=client_context(mac(0), cluster(3)), server_hostname="macluster"
    )
    assert await soon(reader.read()) == b""
    writer.close()
    assert listener.links.empty()


@pytest.mark.promise("P11")
async def test_who_only_sits_at_the_door_does_not_keep_a_member_out(listener: LinkListener) -> None:
    """Only eight handshakes run at once; a ninth takes the place of the oldest."""
    async with contextlib.AsyncExitStack() as stack:
        readers = []
        for _ in range(control_link.HANDSHAKES + 3):
            reader, writer = await asyncio.open_connection(HOST, listener.port)
            stack.callback(writer.close)
            readers.append(reader)
        for reader in readers[:3]:
            assert await soon(reader.read()) == b""
        assert not any(reader.at_eof() for reader in readers[3:])
        await listener.pair()


@pytest.mark.parametrize("cancelled", ["who dials", "who listens"])
async def test_a_handshake_that_is_cancelled_as_tls_stands_leaves_nothing(
    listener: LinkListener, monkeypatch: pytest.MonkeyPatch, cancelled: str
) -> None:
    dialling = asyncio.ensure_future(listener.dial())
    ends: asyncio.Queue[tuple[asyncio.Future[Any], socket.socket]] = asyncio.Queue()
    begin = tls_stream._Protocol.connection_made

    def connection_made(protocol: tls_stream._Protocol, transport: asyncio.BaseTransport) -> None:
        begin(protocol, transport)
        dials = transport.get_extra_info("peername")[1] == listener.port
        if dials == (cancelled == "who dials"):
            task = dialling if dials else next(iter(listener.server._handshakes))
            task.cancel()
            ends.put_nowait((task, transport.get_extra_info("socket")))

    monkeypatch.setattr(tls_stream._Protocol, "connection_made", connection_made)
    task, end = await soon(ends.get())
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.sleep(0)  # Python 3.12 ends the task in the turn before it closes the socket
    assert end.fileno() == -1, "asyncio would say goodbye for a second"
    await asyncio.gather(dialling, return_exceptions=True)


def test_knocks_are_limited_by_address_but_not_on_loopback() -> None:
    limiter = ConnectionAdmission()
    assert [limiter.admits("192.168.1.9", 10.0, links=0) for _ in range(9)] == [True] * 8 + [False]
    assert limiter.admits("192.168.1.10", 10.0, links=0)
    assert [limiter.admits("192.168.1.9", 10.5, links=0) for _ in range(3)] == [True, True, False]
    assert all(limiter.admits("127.0.0.1", 0.0, links=0) and limiter.admits("::1", 0.0, links=0) for _ in range(50))
    assert not limiter.admits("192.168.1.9", 10.5, links=0)


@given(st.lists(st.tuples(st.floats(0, 60), st.integers(0, 400)), max_size=300))
def test_the_limiter_never_lets_more_through_than_its_rate(knocks: list[tuple[float, int]]) -> None:
    limiter, through = ConnectionAdmission(), 0
    for now, host in sorted(knocks):
        through += limiter.admits("10.0.0.1", now, links=0)
        limiter.admits(f"10.1.{host // 256}.{host % 256}", now, links=0)
        assert through <= 8 + 4 * now + 1e-6
        assert len(limiter._buckets) <= 256


# ---- rosters


@pytest.fixture
def stores(tmp_path: Path) -> list[RosterStore]:
    made = [RosterStore(tmp_path / str(n)) for n in range(2)]
    made[0].adopt(bundle(chain(4), *(mac(n).certificate_der for n in range(4))))
    made[1].adopt(bundle(chain(2), *(mac(n).certificate_der for n in range(2))))
    return made


async def test_only_rosters_flow_until_they_are_equal(listener: LinkListener, stores: list[RosterStore]) -> None:
    ahead, behind = stores
    listener.knows = behind.cluster
    near, far = await listener.pair(knows=ahead.cluster())
    assert (near.peer_stand.epoch, far.peer_stand.epoch) == (2, 4)
    assert (near.epochs_differ, far.epochs_differ) == (True, True)

    await near.send(FrameType.PING, b"held")
    await far.send(FrameType.PING, b"held too")
    await near.send(FrameType.ROSTER, ahead.bundle(near.peer_stand.epoch))
    kind, body = await soon(far.recv())
    assert kind is FrameType.ROSTER
    assert behind.adopt(body)
    await far.send(FrameType.ROSTER, behind.bundle())
    assert (await soon(near.recv()))[0] is FrameType.ROSTER
    assert not near.epochs_differ
    assert not far.epochs_differ
    assert await soon(far.recv()) == (FrameType.PING, b"held")
    assert await soon(near.recv()) == (FrameType.PING, b"held too")


async def test_another_frame_before_the_rosters_are_equal_closes_the_link(
    listener: LinkListener, stores: list[RosterStore]
) -> None:
    listener.knows = stores[1].cluster
    near, far = await listener.pair(knows=stores[0].cluster())
    near._put(FrameType.PING, b"rude")
    with pytest.raises(ProtocolError, match="before the rosters were equal"):
        await soon(far.recv())


async def test_frames_held_back_are_bounded(listener: LinkListener, stores: list[RosterStore]) -> None:
    listener.knows = stores[1].cluster
    near, _ = await listener.pair(knows=stores[0].cluster())
    for _ in range(control_link.HELD_FRAMES):
        await near.send(FrameType.PING, b"")
    with pytest.raises(ProtocolError, match="another roster"):
        await near.send(FrameType.PING, b"")


async def test_a_later_roster_travels_between_other_frames(listener: LinkListener, stores: list[RosterStore]) -> None:
    near, far = await listener.pair(knows=cluster(3))
    await near.send(FrameType.ROSTER, stores[0].bundle())
    await near.send(FrameType.PING, b"still flows")
    assert (await soon(far.recv()))[0] is FrameType.ROSTER
    assert (far.stand.epoch, far.peer_stand.epoch) == (3, 4)
    assert await soon(far.recv()) == (FrameType.PING, b"still flows")


async def test_a_recording_proxy_sees_no_plaintext(listener: LinkListener) -> None:
    seen: list[bytes] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            seen.append(data)
            writer.write(data)
        writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection(HOST, listener.port)
        await asyncio.gather(copy(reader, forth), copy(back, writer))

    proxy = await asyncio.start_server(relay, HOST, 0)
    near = await dial_control(
        HOST,
        proxy.sockets[0].getsockname()[1],
        identity=mac(0),
        cluster=cluster(3),
        peer_id=mac(1).device_id,
        timeout_s=3.0,
    )
    listener.open.append(near)
    far = await soon(listener.links.get())
    await near.send(FrameType.PLAN, b"canary in the plan" * 100)
    assert await soon(far.recv()) == (FrameType.PLAN, b"canary in the plan" * 100)
    near.close()
    with pytest.raises(LinkLost):
        await soon(far.recv())
    proxy.close()
    await soon(proxy.wait_closed())
    tls_stream = b"".join(seen)
    assert len(tls_stream) > 2000
    assert not any(
        s in tls_stream for s in (b"canary", b"MCH1", cluster(3).roster.hash, mac(0).text_id.encode(), HOST.encode())
    )


@pytest.mark.parametrize("where", ["in a handshake", "with a link"])
async def test_a_defect_is_told_to_the_event_loop_and_costs_that_link_only(
    listener: LinkListener, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))

    async def fail(*_: object) -> None:
        raise KeyError

    with monkeypatch.context() as patch:
        if where == "in a handshake":
            patch.setattr(control_link, "acceptor_handshake", fail)
            with pytest.raises(LinkLost):
                await listener.dial()
        else:
            patch.setattr(listener.server, "_on_link", fail)
            near = await listener.dial()
            listener.open.append(near)
            with pytest.raises(LinkLost):
                await soon(near.recv())
    assert [type(error) for error in told] == [KeyError]
    await listener.pair()
