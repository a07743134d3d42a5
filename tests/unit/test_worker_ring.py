"""The ring's links get new keys, with real links between threads; no model is needed for that."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from core.errors import HandshakeError, LinkError, LinkLost, Problem, ProtocolError, SealError, StageFailed
from core.events import Plan
from core.link import seal
from core.link.channel import listen
from core.link.frames import FrameType
from core.link.wear import KEY_LIMITS, KeyUse
from core.settings import MAX_FRAMES_PER_KEY
from core.trust.roster import Cluster
from core.worker.desk import Desk
from core.worker.messages import StageSample
from core.worker.neighbours import Neighbours
from core.worker.pipe import Inbox
from core.worker.ring import Ring, read_samples
from core.worker.telemetry import StageMeter
from tests.unit.macs import cluster, mac
from tests.unit.test_node_formation import plan_of

HOST = "127.0.0.1"
WAIT_S = 5.0
BODY = bytes(64)
ENDLESS = KeyUse(frames=1 << 60, bytes=1 << 60, age_s=1e9)


class Used:
    """Every seal that was made: which key, which nonce, which session."""

    def __init__(self) -> None:
        self.nonces: list[tuple[bytes, bytes]] = []
        self.sessions: dict[bytes, set[bytes]] = {}

    def cipher(self, key: bytes) -> Any:
        """ChaCha20Poly1305 that writes down what it seals."""
        real = ChaCha20Poly1305(key)

        class Recording:
            decrypt_into = staticmethod(real.decrypt_into)

            @staticmethod
            def encrypt_into(nonce: bytearray, text: Any, aad: memoryview, out: memoryview) -> int:
                self.nonces.append((key, bytes(nonce)))
                self.sessions.setdefault(key, set()).add(bytes(aad[16:33]))
                return real.encrypt_into(nonce, text, aad, out)

        return Recording()


class Threads:
    """The stages of a ring, each in its thread; all but the head send on what comes."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        read, self._write = os.pipe()
        self._inbox = Inbox(read)  # its pipe stays open: where it ends, this process ends
        self.listeners: list[socket.socket] = []
        self.rings: list[Ring] = []
        self.followers: list[Future[None]] = []

    @property
    def head(self) -> Ring:
        return self.rings[0]

    def link(self, size: int, limits: KeyUse, clusters: dict[int, Cluster] | None = None) -> None:
        pool = self._stack.enter_context(ThreadPoolExecutor(size))
        self.listeners = [self._stack.enter_context(listen(HOST)) for _ in range(size)]
        plan = plan_between(size)

        def neighbours(index: int) -> Neighbours:
            return Neighbours(
                plan,
                index,
                listener=self.listeners[index],
                next_address=(HOST, self.listeners[(index + 1) % size].getsockname()[1]),
                identity=mac(index),
                cluster=(clusters or {}).get(index, cluster(size)),
                row_bytes=1000,
            )

        making = [pool.submit(Ring, neighbours(n), StageMeter(n), limits) for n in range(size)]
        self.rings = [made.result(WAIT_S) for made in making]
        for ring in self.rings:
            self._stack.callback(ring.close)
        self.followers = [pool.submit(self._send_on, ring) for ring in self.rings[1:]]

    def _send_on(self, ring: Ring) -> None:
        try:
            while (frame := ring.receive()).header.type is not FrameType.BYE:
                request = frame.header.request_id
                if frame.header.type is FrameType.RESUME:
                    ring.follow(request)
                elif frame.header.type is FrameType.TELEMETRY:
                    ring.send_samples(FrameType.TELEMETRY, request, read_samples(frame))
                else:
                    ring.send(FrameType(frame.header.type), request, frame.header.pos, bytes(frame.body))
        finally:
            ring.close()

    def round(self, request: bytes, position: int) -> None:
        """As the head does: new keys if they are due, then once round the ring."""
        desk = Desk(self._inbox)
        self.head.renew_worn(request, desk)
        self.head.send(FrameType.ACK, request, position, BODY)
        assert bytes(self.head.expect(FrameType.ACK, request, position, desk, WAIT_S).body) == BODY

    def rounds(self, count: int) -> None:
        """So many of one request."""
        for position in range(count):
            self.round(b"r" * 16, position)

    def samples(self) -> list[StageSample]:
        """What every stage tells of itself, in ring order."""
        self.head.send_samples(FrameType.TELEMETRY, bytes(16), [])
        return read_samples(self.head.expect(FrameType.TELEMETRY, bytes(16), 0, Desk(self._inbox), WAIT_S))

    def renewals(self) -> list[int]:
        return [sample.renewals for sample in self.samples()]


def plan_between(size: int) -> Plan:
    plan = plan_of(size)
    stages = tuple(msgspec.structs.replace(s, device_id=mac(n).text_id) for n, s in enumerate(plan.stages))
    return msgspec.structs.replace(plan, stages=stages, output=stages[0].device_id)


@pytest.fixture
def threads() -> Iterator[Threads]:
    with ExitStack() as stack:
        yield Threads(stack)


@contextmanager
def hung_up(threads: Threads) -> Iterator[None]:
    """The head is gone afterwards, and nobody hangs."""
    try:
        yield
    finally:
        threads.head.close()
        for follower in threads.followers:
            follower.exception(WAIT_S)


def test_no_nonce_comes_twice_under_one_key_in_10000_frames_of_many_requests(
    threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = Used()
    monkeypatch.setattr(seal, "ChaCha20Poly1305", used.cipher)
    threads.link(2, msgspec.structs.replace(ENDLESS, frames=500))
    with hung_up(threads):
        for _ in range(100):
            request = secrets.token_bytes(16)
            threads.head.begin()
            for position in range(51):
                threads.round(request, position)
        assert threads.renewals() == [10, 10]
    assert len(used.nonces) >= 10_000
    assert len(set(used.nonces)) == len(used.nonces)
    assert len(used.sessions) == 2 * 2 * 11, "each of the two links, there and back, and each time it was linked"
    assert all(len(sessions) == 1 for sessions in used.sessions.values())
    assert len({session[:16] for sessions in used.sessions.values() for session in sessions}) == 2 * 11


@pytest.mark.parametrize("limit", [{"frames": 5}, {"bytes": 500}, {"age_s": 0.0}], ids=str)
def test_each_limit_renews_the_links_and_the_figures_of_the_request_go_on(threads: Threads, limit: Any) -> None:
    threads.link(3, msgspec.structs.replace(ENDLESS, **limit))
    with hung_up(threads):
        threads.head.begin()
        before = [ring._sender._sealer._prefix for ring in threads.rings]
        threads.rounds(12)
        samples = threads.samples()
        after = [ring._sender._sealer._prefix for ring in threads.rings]
    (renewals,) = {s.renewals for s in samples}
    assert renewals >= 2
    assert not set(before) & set(after)
    assert {s.frames for s in samples} == {12 + renewals}
    assert all(s.key.frames <= 8 and s.key.bytes <= 8 * 128 and s.key.age_s > 0 for s in samples)


def test_nothing_is_renewed_below_the_limits_and_stages_never_begin(threads: Threads) -> None:
    threads.link(2, KEY_LIMITS)
    with hung_up(threads):
        threads.round(b"r" * 16, 0)
        threads.head.heed([StageSample(index=0), StageSample(index=1, key=KeyUse(frames=(1 << 32) - 1))])
        threads.round(b"r" * 16, 1)
        assert threads.renewals() == [0, 0]


@pytest.mark.parametrize(
    "use", [KeyUse(frames=1 << 32), KeyUse(bytes=64 << 30), KeyUse(age_s=3600.0)], ids=["frames", "bytes", "age"]
)
def test_a_worn_key_anywhere_in_the_ring_renews_all_of_them_once(threads: Threads, use: KeyUse) -> None:
    threads.link(3, KEY_LIMITS)
    with hung_up(threads):
        threads.head.heed([StageSample(index=0), StageSample(index=1), StageSample(index=2, key=use)])
        threads.round(b"r" * 16, 0)
        threads.round(b"r" * 16, 1)
        assert threads.renewals() == [1, 1, 1]


def test_a_stage_that_cannot_be_reached_breaks_the_ring_and_everybody_learns_it_at_once(threads: Threads) -> None:
    threads.link(3, msgspec.structs.replace(ENDLESS, frames=5))
    threads.rings[1]._neighbours._next_address = (HOST, 1)
    with hung_up(threads), pytest.raises(LinkLost, match="closed the link"):
        threads.rounds(12)
    assert [ring._renewals for ring in threads.rings] == [0, 0, 0]
    first, second = (str(f.exception()) for f in threads.followers)
    assert "Nothing listens" in first
    assert "closed the link" in second


def test_new_links_need_the_roster_of_the_old_ones(threads: Threads) -> None:
    """A stage that was given another roster meanwhile does not answer under it."""
    threads.link(2, msgspec.structs.replace(ENDLESS, frames=5))
    threads.rings[1]._neighbours._cluster = cluster(3)
    with hung_up(threads), pytest.raises(LinkLost, match="closed the link"):
        threads.rounds(12)
    assert isinstance(threads.followers[0].exception(), LinkLost), "it did not wait for its time to run out"


@pytest.mark.parametrize(
    ("kind", "body", "error"),
    [
        (FrameType.ERROR, HandshakeError("It is another Mac.").problem, HandshakeError),
        (FrameType.ERROR, StageFailed("No memory.").problem, LinkLost),
        (FrameType.ERROR, Problem(kind="SystemExit", what="x"), LinkLost),
        (FrameType.ERROR, 7, ProtocolError),
        (FrameType.ACK, 7, ProtocolError),
    ],
)
def test_whatever_a_neighbour_says_while_new_links_are_due_ends_the_wait_as_a_broken_link(
    threads: Threads, kind: FrameType, body: Any, error: type[LinkError]
) -> None:
    threads.link(2, KEY_LIMITS)
    with hung_up(threads):
        threads.head.send(FrameType.RESUME, b"r" * 16)
        threads.head.send(kind, b"r" * 16, body=msgspec.msgpack.encode(body))
        assert type(threads.followers[0].exception(WAIT_S)) is error


def test_a_key_that_nobody_renewed_stops_and_the_link_with_it(threads: Threads) -> None:
    threads.link(2, ENDLESS)
    with hung_up(threads):
        for half in (threads.head._sender._sealer, threads.rings[1]._receiver._opener):
            half._seq = MAX_FRAMES_PER_KEY - 1
        threads.round(b"r" * 16, 0)
        with pytest.raises(SealError, match="as many frames as one key may"):
            threads.round(b"r" * 16, 1)
        assert isinstance(threads.followers[0].exception(WAIT_S), LinkLost), "it was hung up on"
