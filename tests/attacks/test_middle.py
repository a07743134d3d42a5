"""T2: a man in the middle with any certificate gets no session, and neither does a recording."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator

import pytest

from core.errors import HandshakeError, LinkError
from core.link.control_link import dial_control
from core.link.frames import HEADER, FrameType, parse
from core.link.seal import Sealer
from core.link.session import AUTH_BYTES, HELLO, REPLY_BYTES
from tests.attacks import relays
from tests.attacks.relays import Meddler, Middle, Way
from tests.attacks.victim import (
    HOST,
    SIZE,
    Observer,
    Stranger,
    Victim,
    call,
    cast,
    dialler_at,
    exactly,
    handshake,
    last_words,
    member_client,
    member_server,
    running_victim,
    serving,
)
from tests.support.macs import cluster, mac
from tests.support.search import SEARCH

pytestmark = pytest.mark.slow

SESSIONS = 12
MEDDLED = 39 * SEARCH  # three times at each place
GOODBYE = b'{"type":"Bye","reason":"x"}'
AT_ONCE = 4
CLIENT, SERVER = ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER


@pytest.fixture(scope="module")
def victim() -> Iterator[Victim]:
    with running_victim(cast().victim, "--no-multicast") as running:
        yield running


async def ready(victim: Victim, port: int, count: int) -> int:
    """How many of `count` honest dials through `port` become a link."""
    links = 0

    async def some(number: int) -> None:
        nonlocal links
        for _ in range(number):
            try:
                link = await victim.dial(cast().low, port=port)
            except LinkError:
                continue
            links += 1
            link.close()

    await asyncio.gather(*(some(count // AT_ONCE + (n < count % AT_ONCE)) for n in range(AT_ONCE)))
    return links


@pytest.mark.search
@pytest.mark.promise("P2", "T2")
async def test_no_control_session_through_a_man_in_the_middle_is_ready(victim: Victim) -> None:
    """`test_data_plane` has the sessions of the data plane."""
    own, name = mac(cast().low).text_id, victim.me.text_id
    men = {
        "a stranger": (Stranger().context(SERVER), Stranger().context(CLIENT)),
        "a stranger in their names": (Stranger(name).context(SERVER), Stranger(own).context(CLIENT)),
        "a member in between": (member_server(cast().high), member_client(cast().high)),
    }
    async with Observer(victim) as observer:
        before = await observer.links()
        for who, (near, far) in men.items():
            async with Middle(victim.port, near, far) as port:
                assert await ready(victim, port, SESSIONS) == 0, who
        assert await meddle(victim, MEDDLED) == 0
        assert await observer.links() == before


async def meddle(victim: Victim, count: int) -> int:
    """Links that stood although one bit of one TLS record was changed, anywhere in the handshake."""
    links = 0
    places: list[tuple[Way, int]] = [*(("up", n) for n in range(6)), *(("down", n) for n in range(7))]
    meddler = Meddler(victim.port, seed=2)
    async with meddler as port:
        for number in range(count):
            meddler.aim = places[number % len(places)]
            links += await ready(victim, port, 1)
            assert meddler.hits == number + 1, f"{meddler.aim} was not reached"
    return links


# ---- recordings and mirrors


async def recorded(victim: Victim) -> relays.Session:
    """The TLS records of an honest session, with messages of both sides."""
    recorder = Meddler(victim.port)
    async with recorder as port:
        link = await victim.dial(cast().low, port=port)
        await link.send(FrameType.BYE, GOODBYE)
        await link.recv()
        link.close()
        await link.wait_closed()
        return recorder.last


@pytest.mark.promise("P3")
async def test_a_recorded_session_opens_nothing_when_it_is_played_again(victim: Victim) -> None:
    async with Observer(victim) as observer:
        before = await observer.links()
        session = (await recorded(victim)).records
        for _ in range(5):
            with call(victim.port) as sock:
                sock.sendall(b"".join(session["up"]))
                last_words(sock)
        assert await observer.links() == before + 1, "the one that was recorded"

    def play(sock: socket.socket) -> None:
        sock.sendall(b"".join(session["down"]))
        last_words(sock)

    with serving(play) as port:
        assert await ready(victim, port, 5) == 0


@pytest.mark.promise("P3")
async def test_a_mirror_opens_nothing(victim: Victim) -> None:
    def mirror(sock: socket.socket) -> None:
        while data := sock.recv(65536):
            sock.sendall(data)

    with serving(mirror) as port:
        assert await ready(victim, port, 5) == 0


# ---- the same below TLS: the inner session must hold against an attacker who breaks TLS, or has a member's TLS key


async def test_the_inner_handshake_of_yesterday_does_not_open_today(victim: Victim) -> None:
    async with Observer(victim) as observer:
        before = await observer.links()
        with call(victim.port, member_client(cast().low)) as sock:
            _, said = handshake(sock, victim, cast().low)
        for _ in range(5):
            with call(victim.port, member_client(cast().low)) as sock:
                sock.sendall(said)
                assert len(last_words(sock)) in (0, REPLY_BYTES), "it never acknowledged"
        assert await observer.links() == before + 1, "the honest one"


async def test_a_hello_relayed_by_another_member_is_refused(victim: Victim) -> None:
    """A dialler that ignores the certificate reaches the wrong Mac, and still gets no session."""

    def astray(port: int) -> bytes:
        with call(port, member_client(cast().low)) as sock:
            sock.sendall(dialler_at(sock, victim, cast().low).hello)
            return last_words(sock)

    async with Observer(victim) as observer:
        before = await observer.links()
        async with Middle(victim.port, member_server(cast().high), member_client(cast().high)) as port:
            for _ in range(5):
                assert await asyncio.to_thread(astray, port) == b""
        assert await observer.links() == before


async def test_a_hello_sent_back_to_who_sent_it_is_refused(victim: Victim) -> None:
    def reflect(sock: socket.socket) -> None:
        sock.sendall(exactly(sock, HELLO.size) + bytes(AUTH_BYTES))
        last_words(sock)

    with serving(reflect, member_server(cast().high)) as port:
        for _ in range(5):
            with pytest.raises(HandshakeError):
                await dial_control(
                    HOST,
                    port,
                    identity=victim.me,
                    cluster=cluster(SIZE),
                    peer_id=mac(cast().high).device_id,
                    timeout_s=60.0,
                )


@pytest.mark.parametrize("trick", ["replay", "reflection", "skip", "another session", "another type", "longer"])
@pytest.mark.promise("P3", "T6")
def test_a_frame_that_is_not_the_next_one_of_this_session_ends_it(victim: Victim, trick: str) -> None:
    with call(victim.port, member_client(cast().low)) as sock, call(victim.port, member_client(cast().high)) as second:
        session, _ = handshake(sock, victim, cast().low)
        sealer = Sealer(session)
        sealer.seal(FrameType.HELLO)
        head = exactly(sock, HEADER.size)
        theirs = head + exactly(sock, parse(head).body_len)
        bye = bytes(sealer.seal(FrameType.BYE, parts=[GOODBYE]))
        match trick:
            case "replay":
                sock.sendall(bye + bye)
            case "reflection":
                sock.sendall(theirs)
            case "skip":
                sock.sendall(bytes(sealer.seal(FrameType.BYE, parts=[GOODBYE])))
            case "another session":
                other = Sealer(handshake(second, victim, cast().high)[0])
                other.seal(FrameType.HELLO)
                sock.sendall(bytes(other.seal(FrameType.BYE, parts=[GOODBYE])))
            case "another type":
                sock.sendall(bye[:3] + bytes([FrameType.PING]) + bye[4:])
            case "longer":
                sock.sendall(bye[:8] + (len(bye) - 47).to_bytes(4, "little") + bye[12:] + b"x")
        last_words(sock)
    assert victim.is_alive
