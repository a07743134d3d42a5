"""The ring's links get new keys and count their traffic, between threads; no model is needed for that."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from core.errors import HandshakeError, LinkError, LinkLost, Problem, ProtocolError, SealError, StageFailed
from core.link import seal
from core.link.data_plane import Frame
from core.link.frames import FrameType
from core.link.rekey_limits import KEY_LIMITS, KeyUse
from core.link.seal import MAX_FRAMES_PER_KEY
from core.settings import MAX_CONTROL_BODY
from core.worker import ring as ring_module
from core.worker.messages import StageSample
from core.worker.ring import Ring, read_samples
from core.worker.work_frames import NO_STEP, WorkFrame, encode_problem, read_work
from tests.support.linked import WAIT_S, Linked
from tests.support.macs import cluster

BODY = bytes(64)
ENDLESS = KeyUse(frames=1 << 52, bytes=1 << 52, age_s=1e9)
MIB = 1 << 20


class Used:
    """Every seal made: key, nonce and session."""

    def __init__(self) -> None:
        self.nonces: list[tuple[bytes, bytes]] = []
        self.sessions: dict[bytes, set[bytes]] = {}

    def cipher(self, key: bytes) -> Any:
        """ChaCha20Poly1305 that records its seals."""
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
    """The stages of a ring, each in its thread; all but the head pass frames on."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.rings: list[Ring] = []
        self.followers: list[Future[None]] = []

    @property
    def head(self) -> Ring:
        return self.rings[0]

    def link(self, size: int, limits: KeyUse) -> Linked:
        linked = Linked(self._stack, size, limits=limits)
        self.rings = linked.link()
        self.followers = [linked.pool.submit(self._send_on, ring) for ring in self.rings[1:]]
        return linked

    def _send_on(self, ring: Ring) -> None:
        try:
            while (frame := ring.receive()).header.type is not FrameType.BYE:
                if frame.header.type is FrameType.RESUME:
                    ring.follow()
                elif frame.header.type is FrameType.TELEMETRY:
                    ring.send_samples(read_samples(frame))
                else:
                    ring.send_work(*read_work(frame))
        finally:
            ring.close()

    def round(self, step: int, request: bytes = b"r" * 16) -> None:
        """Go once round the ring as the head does: with new keys if they are due."""
        if self.head.needs_new_keys:
            self.head.renew()
        self.head.send_work(WorkFrame(FrameType.COMPOSE, step, request=request, payload=[BODY]), step)
        came, base = read_work(self.head.expect(FrameType.COMPOSE, WAIT_S))
        assert (came.step, came.request, bytes(came.payload[0]), base) == (step, request, BODY, step)

    def rounds(self, count: int) -> None:
        """Run `count` rounds, one after the other."""
        for step in range(1, count + 1):
            self.round(step)

    def samples(self) -> list[StageSample]:
        """The figures of every stage, in ring order."""
        self.head.send_samples([])
        return read_samples(self.head.expect(FrameType.TELEMETRY, WAIT_S))

    def renewals(self) -> list[int]:
        return [sample.renewals for sample in self.samples()]


@pytest.fixture
def threads() -> Iterator[Threads]:
    with ExitStack() as stack:
        yield Threads(stack)


@contextmanager
def hung_up(threads: Threads) -> Iterator[None]:
    """Close the head at the end, and check that no stage hangs."""
    try:
        yield
    finally:
        threads.head.close()
        for follower in threads.followers:
            follower.exception(WAIT_S)


@pytest.mark.slow
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
            for step in range(1, 52):
                threads.round(step, request)
        assert threads.renewals() == [10, 10]
    assert len(used.nonces) >= 10_000
    assert len(set(used.nonces)) == len(used.nonces)
    assert len(used.sessions) == 2 * 2 * 11, "each of the two links, there and back, and each time it was linked"
    assert all(len(sessions) == 1 for sessions in used.sessions.values())
    assert len({session[:16] for sessions in used.sessions.values() for session in sessions}) == 2 * 11


@pytest.mark.parametrize("limit", [{"frames": 5}, {"bytes": 500}, {"age_s": 0.0}], ids=str)
def test_each_limit_renews_the_links_and_the_figures_go_on(threads: Threads, limit: Any) -> None:
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
    assert all(s.key.frames <= 8 and s.key.bytes <= 8 * 150 and s.key.age_s > 0 for s in samples)


def test_nothing_is_renewed_below_the_limits_and_stages_never_begin(threads: Threads) -> None:
    threads.link(2, KEY_LIMITS)
    with hung_up(threads):
        threads.round(1)
        threads.head.note_keys([StageSample(index=0), StageSample(index=1, key=KeyUse(frames=(1 << 32) - 1))])
        assert not threads.head.needs_new_keys
        threads.round(2)
        assert threads.renewals() == [0, 0]


@pytest.mark.parametrize(
    "use", [KeyUse(frames=1 << 32), KeyUse(bytes=64 << 30), KeyUse(age_s=3600.0)], ids=["frames", "bytes", "age"]
)
def test_a_worn_key_anywhere_in_the_ring_renews_all_of_them_once(threads: Threads, use: KeyUse) -> None:
    threads.link(3, KEY_LIMITS)
    with hung_up(threads):
        threads.head.note_keys([StageSample(index=0), StageSample(index=1), StageSample(index=2, key=use)])
        assert threads.head.needs_new_keys
        threads.rounds(2)
        assert threads.renewals() == [1, 1, 1]


def test_a_stage_that_cannot_be_reached_breaks_the_ring_and_everybody_learns_it_at_once(threads: Threads) -> None:
    threads.link(3, msgspec.structs.replace(ENDLESS, frames=5))
    threads.rings[1].neighbours._next_port = 1
    with hung_up(threads), pytest.raises(LinkLost, match="closed the link"):
        threads.rounds(12)
    assert [ring._renewals for ring in threads.rings] == [0, 0, 0]
    first, second = (str(f.exception()) for f in threads.followers)
    assert "Nothing listens" in first
    assert "closed the link" in second


def test_new_links_need_the_roster_of_the_old_ones(threads: Threads) -> None:
    """A stage with another roster by then does not answer under it."""
    linked = threads.link(2, msgspec.structs.replace(ENDLESS, frames=5))
    linked.know(1, cluster(3))
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
        (FrameType.ACTIVATION, 7, ProtocolError),
    ],
)
def test_whatever_a_neighbour_says_while_new_links_are_due_ends_the_wait_as_a_broken_link(
    threads: Threads, kind: FrameType, body: Any, error: type[LinkError]
) -> None:
    threads.link(2, KEY_LIMITS)
    with hung_up(threads):
        threads.head.send(FrameType.RESUME)
        threads.head.send_work(WorkFrame(kind, NO_STEP, rows=1, payload=[msgspec.msgpack.encode(body)]), NO_STEP)
        assert type(threads.followers[0].exception(WAIT_S)) is error


def test_a_key_that_nobody_renewed_stops_and_the_link_with_it(threads: Threads) -> None:
    threads.link(2, ENDLESS)
    with hung_up(threads):
        for half in (threads.head._sender._sealer, threads.rings[1]._receiver._opener):
            half._seq = MAX_FRAMES_PER_KEY - 1
        threads.round(1)
        with pytest.raises(SealError, match="as many frames as one key may"):
            threads.round(2)
        assert isinstance(threads.followers[0].exception(WAIT_S), LinkLost), "it was hung up on"


# ---- traffic on the links


@pytest.fixture
def pair() -> Iterator[Linked]:
    """Two stages whose ends are all in this thread."""
    with ExitStack() as stack:
        linked = Linked(stack, 2)
        linked.link()
        yield linked


def test_a_frame_comes_with_all_that_it_says(pair: Linked) -> None:
    sent = WorkFrame(FrameType.ACTIVATION, 9, 2**32 - 1, b"q" * 16, 7, 3, True, False, (b"z" * 16,), [b"abc", b"def"])
    pair.head.send_work(sent, 4)
    came, base = read_work(pair.rings[1].receive())
    assert came._replace(payload=[bytes(part) for part in came.payload]) == sent._replace(payload=[b"abcdef"])
    assert base == 4


def test_a_frame_of_another_plan_is_refused(pair: Linked) -> None:
    pair.head.plan = msgspec.structs.replace(pair.plan, plan_gen=pair.plan.plan_gen - 1)
    pair.head.send_work(WorkFrame(FrameType.COMPOSE, 1), 1)
    with pytest.raises(ProtocolError, match="A frame of plan 100 came while plan 101 runs"):
        pair.rings[1].receive()


@pytest.mark.parametrize("kind", [FrameType.ACTIVATION, FrameType.COMPOSE, FrameType.KV, FrameType.ERROR])
def test_work_of_other_layers_is_refused(pair: Linked, kind: FrameType) -> None:
    pair.head._stage = pair.plan.stages[1]
    pair.head.send_work(WorkFrame(kind, 1), 1)
    with pytest.raises(ProtocolError, match=r"Work of layers \(2, 4\) came from mac0"):
        pair.rings[1].receive()


@pytest.mark.parametrize("kind", [FrameType.COMPOSE, FrameType.ACK, FrameType.ERROR, FrameType.TOKEN])
def test_what_carries_no_tensor_is_short(pair: Linked, kind: FrameType) -> None:
    for beyond in (0, 1):
        layers = (0, 2)
        pair.head._sender.send(kind, layers=layers, plan_gen=101, parts=[bytes(MAX_CONTROL_BODY + beyond)])
    assert len(pair.rings[1].receive().body) == MAX_CONTROL_BODY
    with pytest.raises(ProtocolError, match="65537 bytes and no tensor"):
        pair.rings[1].receive()


def test_why_the_ring_breaks_goes_round_and_is_raised_as_what_it_is(pair: Linked) -> None:
    pair.rings[1].send_break(HandshakeError("It is another Mac.").problem)
    with pytest.raises(HandshakeError, match="another Mac"):
        pair.head.expect(FrameType.RESUME, WAIT_S)
    pair.head.close()
    pair.rings[1].send_break(HandshakeError("It is another Mac.").problem)  # no other end, and nothing is raised


def sample_frame(body: object) -> Frame:
    header = msgspec.msgpack.encode(body)
    return Frame(None, memoryview(header))  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["compute_s", "wait_s", "open_s"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e10], ids=str)
def test_figures_that_cannot_be_are_refused(field: str, value: float) -> None:
    """Window and chunk follow the figures."""
    with pytest.raises(ProtocolError, match="impossible times"):
        read_samples(sample_frame([{"index": 0}, {"index": 1, field: value}]))
    assert read_samples(sample_frame([{"index": 1, field: 1e9}]))


@pytest.mark.parametrize("field", ["frames", "bytes", "queue", "renewals"])
@pytest.mark.parametrize("value", [-1, 1 << 53, (1 << 64) - 1], ids=str)
def test_counts_that_cannot_be_are_refused(field: str, value: int) -> None:
    with pytest.raises(ProtocolError, match="impossible times"):
        read_samples(sample_frame([{"index": 1, field: value}]))


@pytest.mark.parametrize("indices", [[], [0], [1, 0], [0, 0], [0, 1, 2]], ids=str)
def test_each_stage_tells_of_itself_and_of_nobody_else(pair: Linked, indices: list[int]) -> None:
    with pytest.raises(ProtocolError, match="samples came from 2 stages"):
        pair.head.note_keys([StageSample(index=index) for index in indices])


# ---- the head reads while it can't send


@pytest.mark.slow
@pytest.mark.parametrize("renewed", [False, True], ids=["first-links", "renewed-links"])
def test_a_head_with_more_on_its_way_than_all_buffers_hold_does_not_stand_still(
    threads: Threads, renewed: bool
) -> None:
    threads.link(3, KEY_LIMITS)
    count, payload = 96, bytes(MIB - 64)
    with hung_up(threads):
        if renewed:
            threads.head.renew()
        for step in range(1, count + 1):
            threads.head.send_work(WorkFrame(FrameType.ACTIVATION, step, rows=1, payload=[payload]), 1)
        assert threads.head.has_frame()
        for step in range(1, count + 1):
            came, _ = read_work(threads.head.expect(FrameType.ACTIVATION, WAIT_S))
            assert came.step == step
            assert len(came.payload[0]) == len(payload)
        assert not threads.head.has_frame()


def test_a_neighbour_that_answers_unasked_while_the_head_cannot_send_is_hung_up_on(
    pair: Linked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ring_module, "ARRIVED_LIMIT", 8)
    hostile = pair.rings[1]
    for step in range(10):
        hostile.send_work(WorkFrame(FrameType.ERROR, step, payload=encode_problem(Problem(kind="x", what="y"))), 0)
    with pytest.raises(ProtocolError, match="mac1 sends more answers than it gets requests"):
        send_unread(pair.head)
    assert pair.head._sender._sock.fileno() == -1


def send_unread(head: Ring) -> None:
    """Send more than the buffers hold."""
    for step in range(1, 200):
        head.send_work(WorkFrame(FrameType.ACTIVATION, step, rows=1, payload=[bytes(MIB - 64)]), 1)
