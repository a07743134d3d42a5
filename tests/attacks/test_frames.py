"""T4, T6: mutated frames, from the wire and from a hostile member: none is accepted, none kills a process."""

from __future__ import annotations

import random
import socket
import ssl
from collections import Counter
from collections.abc import Iterator

import pytest

from core.errors import ProtocolError, SealError
from core.link.frames import HEADER, FrameHeader, FrameType
from core.link.seal import Opener, Sealer
from core.link.session import LinkSession
from core.node.base.node_message import to_frame
from core.node.peers.messages import Bye, Ping
from tests.attacks.mutations import mutate, mutated_json
from tests.attacks.victim import Observer, Victim, call, cast, handshake, last_words, member_client, running_victim
from tests.support.handshakes import agree
from tests.support.macs import mac
from tests.support.node_messages import EVERY
from tests.support.search import SEARCH

pytestmark = pytest.mark.slow

FRAMES = 30_000 * SEARCH
SENT = 100 * SEARCH
MIB = 1 << 20


@pytest.mark.search
@pytest.mark.promise("P6")
def test_no_mutated_frame_is_taken() -> None:
    a, b = agree()
    sealer, opener = Sealer(a), Opener(b)
    dice = random.Random(3)
    before = sealer_frame(sealer, 64)
    opener.open_frame(before)
    good = sealer_frame(sealer, 64)
    refused: Counter[str] = Counter()
    for _ in range(FRAMES):
        bad = mutate(good, before, dice)
        assert bad != good
        try:
            opener.open_frame(bad)
        except (SealError, ProtocolError) as error:
            refused[type(error).__name__] += 1
    assert refused.total() == FRAMES
    assert refused["SealError"] > FRAMES // 10, "not only the parser was reached"
    assert refused["ProtocolError"] > FRAMES // 10
    assert bytes(opener.open_frame(good)[1]) == bytes(64), "and the link stands where it stood"


def sealer_frame(sealer: Sealer, length: int) -> bytes:
    return bytes(sealer.seal(FrameType.ACTIVATION, rows=1, pos=3, layers=(2, 9), parts=[bytes(length)]))


@pytest.mark.promise("P7")
def test_no_nonce_serves_twice_over_10000_frames_of_many_requests() -> None:
    used: set[tuple[bytes, bytes]] = set()
    dice, count = random.Random(4), 0
    for _ in range(5):
        a, b = agree()
        for session in (a, b):
            sealer = Sealer(session)
            requests = [dice.randbytes(16) for _ in range(50)]
            for _ in range(1000):
                kind = dice.choice([FrameType.ACTIVATION, FrameType.ACK, FrameType.ERROR])
                sealer.seal(kind, request_id=dice.choice(requests), pos=dice.randrange(9), parts=[bytes(8)])
                used.add((session.send_key, bytes(sealer._nonce)))
                count += 1
    assert len(used) == count == 10_000


# ---- against a real node


@pytest.fixture(scope="module")
def victim() -> Iterator[Victim]:
    with running_victim(cast().victim, "--no-multicast") as running:
        yield running


def linked(victim: Victim, sock: socket.socket) -> tuple[LinkSession, Sealer]:
    session, _ = handshake(sock, victim, cast().low)
    sealer = Sealer(session)
    sealer.seal(FrameType.HELLO)
    return session, sealer


def send_and_hang_up(sock: socket.socket, data: bytes) -> None:
    """Send data and close: a frame that claims to be longer ends here."""
    assert isinstance(sock, ssl.SSLSocket)
    sock.sendall(data)
    sock.shutdown(socket.SHUT_WR)
    last_words(sock)


@pytest.mark.search
async def test_mutated_frames_on_the_wire_are_not_taken_and_the_node_lives(victim: Victim) -> None:
    dice = random.Random(5)
    async with Observer(victim) as observer:
        for number in range(SENT + 1):
            with call(victim.port, member_client(cast().low)) as sock:
                _, sealer = linked(victim, sock)
                kind, body = to_frame(Bye(reason="control" if number == SENT else "forged"))
                before = bytes(sealer.seal(FrameType.PING, parts=[to_frame(Ping(sent=1.0))[1]]))
                good = bytes(sealer.seal(kind, parts=[body]))
                send_and_hang_up(sock, before + (good if number == SENT else mutate(good, before, dice)))
        assert await observer.links() >= SENT
        assert observer.reasons("control") == 1
        assert observer.reasons("forged") == 0


@pytest.mark.search
@pytest.mark.promise("T4")
async def test_a_member_that_sends_nonsense_well_sealed_harms_nobody(victim: Victim) -> None:
    """T4: it holds the keys, so every frame opens; the content is junk, or a changed message."""
    dice = random.Random(6)
    async with Observer(victim) as observer:
        for _ in range(SENT):
            with call(victim.port, member_client(cast().low)) as sock:
                _, sealer = linked(victim, sock)
                said = b""
                for _ in range(dice.randrange(1, 6)):
                    kind, body = mutated_json(dice.choice(EVERY), dice)
                    said += bytes(sealer.seal(kind, parts=[body]))
                send_and_hang_up(sock, said)
        assert await observer.links() >= SENT
        assert {p.device_id for p in observer.now.peers} <= {mac(n).text_id for n in cast()}
        assert observer.now.plan is None
        assert not [e for e in observer.seen if r"\x1b" in repr(e)]
    assert victim.is_alive


def claims(length: int, seq: int) -> bytes:
    return HEADER.pack(b"MC", 1, *FrameHeader(FrameType.PLAN, 0, 0, 0, length, 0, seq, bytes(16), 0, 0, 0, 0))


@pytest.mark.promise("P9")
def test_a_frame_that_claims_1_gib_costs_no_memory(victim: Victim) -> None:
    """Before authentication there is no length at all; afterwards it is checked before anything is allocated."""

    def claim(length: int) -> None:
        with call(victim.port, member_client(cast().low)) as sock:
            linked(victim, sock)
            sock.sendall(claims(length, 1))
            last_words(sock)
        with call(victim.port, member_client(cast().low)) as sock:
            sock.sendall(claims(length, 0) * 4)
            last_words(sock)

    for _ in range(10):
        claim(1 << 30)
    before = victim.rss_bytes
    for length in (1 << 30, 2**32 - 1, 0, 16 * MIB + 17, 64 * 1024 + 17):
        for _ in range(4):
            claim(length)
    assert victim.rss_bytes - before < MIB
