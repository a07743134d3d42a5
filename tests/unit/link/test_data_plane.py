import secrets
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from time import monotonic
from typing import Any

import pytest

from core.errors import HandshakeError, LinkError, LinkLost, LinkTimeout, ProtocolError, SealError
from core.link import concurrent_handshakes, data_link, data_plane
from core.link.concurrent_handshakes import ConcurrentHandshakes
from core.link.data_plane import Receiver, Sender, _Handshake, accept, dial, listen
from core.link.frames import HEADER, FrameHeader, FrameType
from core.link.seal import Sealer
from core.link.session import REPLY_BYTES, Acceptor, Dialler, Kind
from core.link.tls import check_peer, client_context
from core.trust.roster.bundle import Cluster
from tests.support.descriptors import no_descriptor_left
from tests.support.macs import cluster, mac

HOST = "127.0.0.1"
PLAN = b"p" * 32


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, dict[str, Any]]:
    box: dict[str, Any] = {}

    def run() -> None:
        try:
            box["value"] = work()
        except LinkError as error:
            box["error"] = error

    thread = threading.Thread(target=run)
    thread.start()
    return thread, box


class Ends:
    """A dialler (mac 0) and an acceptor (mac 1), each with its own roster and plan."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.listener = stack.enter_context(listen(HOST))
        self.port = self.listener.getsockname()[1]
        cluster(3)  # made once, before two threads ask for it

    def link(
        self,
        *,
        dial_binding: bytes = PLAN,
        accept_binding: bytes = PLAN,
        dial_cluster: Cluster | None = None,
        accept_cluster: Cluster | None = None,
        dialler: int = 0,
        wanted: int = 0,
        expects: int = 1,
        timeout_s: float = 1.0,
        port: int = 0,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The results of the dialling and the accepting side."""
        accepting, accepted = in_thread(
            lambda: accept(
                self.listener,
                identity=mac(1),
                cluster=accept_cluster or cluster(3),
                peer_id=mac(wanted).device_id,
                binding=accept_binding,
                timeout_s=timeout_s,
            ).receiver()
        )
        dialling, dialled = in_thread(
            lambda: dial(
                HOST,
                port or self.port,
                identity=mac(dialler),
                cluster=dial_cluster or cluster(3),
                peer_id=mac(expects).device_id,
                binding=dial_binding,
                timeout_s=timeout_s,
            ).sender()
        )
        accepting.join(10)
        dialling.join(10)
        for box in (dialled, accepted):
            if "value" in box:
                self._stack.callback(box["value"].close)
        return dialled, accepted

    def pair(self, **how: Any) -> tuple[Sender, Receiver]:
        dialled, accepted = self.link(**{"timeout_s": 5.0, **how})
        return dialled["value"], accepted["value"]


@pytest.fixture
def ends_of_a_link() -> Iterator[Ends]:
    with ExitStack() as stack:
        yield Ends(stack)


@pytest.fixture
def pair(ends_of_a_link: Ends) -> tuple[Sender, Receiver]:
    return ends_of_a_link.pair()


def test_frames_flow_with_all_their_fields(pair: tuple[Sender, Receiver]) -> None:
    sender, receiver = pair
    assert (sender.peer_id, receiver.peer_id) == (mac(1).device_id, mac(0).device_id)
    sender.send(
        FrameType.ACTIVATION,
        request_id=b"r" * 16,
        pos=7,
        rows=2,
        layers=(3, 9),
        plan_gen=4,
        flags=2,
        dtype=1,
        parts=[b"abc", memoryview(b"def")],
    )
    frame = receiver.recv(2.0)
    assert frame.header == FrameHeader(FrameType.ACTIVATION, 2, 1, 0, 22, 7, 1, b"r" * 16, 3, 9, 2, 4)
    assert bytes(frame.body) == b"abcdef"
    assert sender.stats.frames == receiver.stats.frames == 1
    assert sender.stats.bytes == receiver.stats.bytes == 48 + 22
    assert min(sender.stats.seal_s, sender.stats.send_s, receiver.stats.wait_s, receiver.stats.open_s) > 0
    receiver.stats.reset()
    assert (receiver.stats.frames, receiver.stats.bytes, receiver.stats.open_s) == (0, 0, 0.0)


def test_large_and_small_frames_flow(pair: tuple[Sender, Receiver]) -> None:
    sender, receiver = pair
    bodies = [secrets.token_bytes(n) for n in (0, 1, 8192, 1 << 20, 16384, 3 << 20, 5)]

    def send_all() -> None:
        for body in bodies:
            sender.send(FrameType.KV, parts=[body])

    thread, _ = in_thread(send_all)
    assert [bytes(receiver.recv(5.0).body) for _ in bodies] == bodies
    thread.join(5)


def test_nagle_is_off_and_keepalive_on_at_both_ends(pair: tuple[Sender, Receiver]) -> None:
    for end in pair:
        assert end._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert end._sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def test_a_frame_is_one_write(pair: tuple[Sender, Receiver], monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[int] = []
    send = ssl.SSLSocket.send

    def count(self: ssl.SSLSocket, data: memoryview) -> int:
        writes.append(len(data))
        return send(self, data)

    monkeypatch.setattr(ssl.SSLSocket, "send", count)
    pair[0].send(FrameType.ACTIVATION, rows=1, parts=[bytes(100), bytes(8000)])
    assert writes == [48 + 8100 + 16]


def test_an_idle_link_times_out_and_stays_good(pair: tuple[Sender, Receiver]) -> None:
    sender, receiver = pair
    for timeout_s in (0.01, 0.0):
        with pytest.raises(LinkTimeout, match="sent nothing"):
            receiver.recv(timeout_s)
    sender.send(FrameType.ACK)
    assert receiver.recv(2.0).header.type is FrameType.ACK


def test_pending_tells_of_bytes_inside_tls(pair: tuple[Sender, Receiver]) -> None:
    sender, receiver = pair
    assert not receiver.pending()
    frames = bytes(sender._sealer.seal(FrameType.ACK)) + bytes(sender._sealer.seal(FrameType.BYE))
    sender._sock.sendall(frames)  # two frames in one TLS record
    assert receiver.recv(2.0).header.type is FrameType.ACK
    assert receiver.pending()
    assert receiver.fileno() >= 0
    assert receiver.recv(0.0).header.type is FrameType.BYE
    assert not receiver.pending()


def test_a_closed_sender_is_a_lost_link(pair: tuple[Sender, Receiver]) -> None:
    pair[0].close()
    with pytest.raises(LinkLost, match="closed the link"):
        pair[1].recv(2.0)
    with pytest.raises(LinkLost):
        pair[1].recv(2.0)


def send_many(sender: Sender) -> None:
    for _ in range(1000):
        sender.send(FrameType.KV, parts=[bytes(1 << 20)])


def test_a_closed_receiver_is_a_lost_link(pair: tuple[Sender, Receiver]) -> None:
    pair[1].close()
    with pytest.raises(LinkLost):
        send_many(pair[0])
    with pytest.raises(LinkLost):
        pair[0].send(FrameType.ACK)


def test_a_receiver_that_never_reads_times_the_sender_out_and_closes(pair: tuple[Sender, Receiver]) -> None:
    sender, _ = pair
    sender._sock.settimeout(0.1)
    with pytest.raises(LinkTimeout):
        send_many(sender)
    assert sender._sock.fileno() == -1


# ---- a sender that reads while it sends


def test_a_sender_that_reads_on_gets_more_round_than_all_buffers_hold(ends_of_a_link: Ends) -> None:
    """The other end is as busy as a stage: it takes the next frame after it has sent the last one on."""
    (out, there), (back, home) = ends_of_a_link.pair(), ends_of_a_link.pair()
    bodies = [bytes([number]) * (1 << 20) for number in range(64)]
    came: list[int] = []

    def send_back() -> None:
        for _ in bodies:
            back.send(FrameType.KV, parts=[there.recv(5.0).body])

    def take() -> None:
        came.append(home.recv(5.0).body[0])

    thread, problem = in_thread(send_back)
    out.drain_meanwhile(home.fileno(), take)
    for body in bodies:
        out.send(FrameType.KV, parts=[body])
    assert came
    while len(came) < len(bodies):
        take()
    thread.join(5)
    assert "error" not in problem
    assert came == list(range(64))
    assert out.stats.frames == 64


def test_what_comes_of_reading_on_passes_through_and_the_link_is_closed(pair: tuple[Sender, Receiver]) -> None:
    sender, _ = pair
    near, far = socket.socketpair()

    def refuse() -> None:
        raise ProtocolError("It said what nobody says.")

    with near, far:
        far.sendall(b"!")
        sender.drain_meanwhile(near.fileno(), refuse)
        sender.send(FrameType.ACK)
        with pytest.raises(ProtocolError, match="nobody says"):
            send_many(sender)
    assert sender._sock.fileno() == -1


def test_a_sender_that_reads_on_still_times_out(pair: tuple[Sender, Receiver], monkeypatch: pytest.MonkeyPatch) -> None:
    sender, receiver = pair
    monkeypatch.setattr(data_link, "SEND_TIMEOUT_S", 0.1)
    near, far = socket.socketpair()
    with near, far:
        sender.drain_meanwhile(near.fileno(), lambda: None)
        with pytest.raises(LinkTimeout):
            send_many(sender)
    assert sender._sock.fileno() == -1
    receiver.close()


def test_a_frame_that_stops_in_the_middle_closes_the_link(
    pair: tuple[Sender, Receiver], monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, receiver = pair
    monkeypatch.setattr(data_link, "SEND_TIMEOUT_S", 0.1)
    sender._sock.sendall(bytes(sender._sealer.seal(FrameType.KV, parts=[bytes(100)]))[:60])
    with pytest.raises(LinkTimeout, match="middle of a frame"):
        receiver.recv(0.05)
    assert receiver.fileno() == -1


def test_a_slow_frame_survives_a_short_poll(pair: tuple[Sender, Receiver]) -> None:
    sender, receiver = pair
    frame = bytes(sender._sealer.seal(FrameType.KV, parts=[b"slow"]))
    sender._sock.sendall(frame[:50])
    timer = threading.Timer(0.1, sender._sock.sendall, [frame[50:]])
    timer.start()
    assert bytes(receiver.recv(0.02).body) == b"slow"
    timer.join()


@pytest.mark.parametrize("at", [0, 3, 16, 24, 47, 48, 60, -1])
def test_a_changed_frame_closes_the_link(pair: tuple[Sender, Receiver], at: int) -> None:
    sender, receiver = pair
    frame = bytearray(sender._sealer.seal(FrameType.KV, parts=[bytes(100)]))
    frame[at] ^= 0x40
    sender._sock.sendall(frame)
    with pytest.raises((SealError, ProtocolError)):
        receiver.recv(2.0)
    assert receiver.fileno() == -1


def test_a_body_of_1_gib_is_refused_before_allocating(pair: tuple[Sender, Receiver]) -> None:
    sender, receiver = pair
    room = len(receiver._opener._buffer)
    sender._sock.sendall(
        HEADER.pack(b"MC", 1, *FrameHeader(FrameType.KV, 0, 0, 0, 1 << 30, 0, 1, bytes(16), 0, 0, 0, 0))
    )
    with pytest.raises(ProtocolError):
        receiver.recv(2.0)
    assert len(receiver._opener._buffer) == room
    assert receiver.fileno() == -1


def test_an_activation_longer_than_its_rows_is_refused_before_allocating(pair: tuple[Sender, Receiver]) -> None:
    sender, receiver = pair
    receiver.row_bytes = 1000
    sender.send(FrameType.ACTIVATION, rows=100, parts=[bytes(100 * 1000 + 512)])
    assert len(receiver.recv(2.0).body) == 100_512
    room = len(receiver._opener._buffer)
    sender.send(FrameType.KV, rows=1, parts=[bytes(2000)])
    receiver.recv(2.0)
    sender.send(FrameType.ACTIVATION, rows=1, parts=[bytes(1513)])
    with pytest.raises(ProtocolError, match="1528 are allowed"):
        receiver.recv(2.0)
    assert len(receiver._opener._buffer) == room


# ---- the handshake


@pytest.mark.promise("P3")
def test_another_plan_is_refused_on_both_sides(ends_of_a_link: Ends) -> None:
    dialled, accepted = ends_of_a_link.link(dial_binding=b"q" * 32)
    assert isinstance(dialled["error"], LinkLost)
    assert isinstance(accepted["error"], LinkTimeout)
    assert "another plan" in accepted["error"].what


def test_another_cluster_is_refused(ends_of_a_link: Ends) -> None:
    dialled, accepted = ends_of_a_link.link(dial_cluster=cluster(3, b"D" * 16))
    assert isinstance(dialled["error"], LinkLost)
    assert "another cluster" in accepted["error"].what


def test_another_roster_is_refused(ends_of_a_link: Ends) -> None:
    dialled, accepted = ends_of_a_link.link(dial_cluster=cluster(2))
    assert isinstance(dialled["error"], LinkLost)
    assert "epoch" in accepted["error"].what


@pytest.mark.slow
def test_the_wrong_member_is_refused(ends_of_a_link: Ends) -> None:
    dialled, accepted = ends_of_a_link.link(dialler=2)
    assert isinstance(dialled["error"], LinkLost)
    assert "was expected" in accepted["error"].what
    dialled, _ = ends_of_a_link.link(expects=2)
    assert isinstance(dialled["error"], HandshakeError)


def test_a_rogue_whom_tls_refused_never_becomes_ready(ends_of_a_link: Ends) -> None:
    """Its own half of the TLS handshake succeeds: only the answer to its hello shows the refusal."""
    dialled, accepted = ends_of_a_link.link(accept_cluster=cluster(2), dialler=2, wanted=2)
    assert isinstance(dialled["error"], LinkError)
    assert "value" not in dialled
    assert isinstance(accepted["error"], LinkTimeout)


def test_nothing_is_ready_before_the_acknowledgement(ends_of_a_link: Ends) -> None:
    def half_an_acceptor() -> None:
        handshake = data_plane._Handshake(mac(1), cluster(3), mac(0).device_id, PLAN)
        ends_of_a_link.listener.setblocking(True)
        plain, _ = ends_of_a_link.listener.accept()
        plain.settimeout(2)
        with handshake._context.wrap_socket(plain, server_side=True) as sock:
            member = check_peer(sock.getpeercert(True), cluster(3))
            certificate = sock.getpeercert(True) or b""
            acceptor = Acceptor(mac(1), cluster(3), member, Kind.DATA, certificate, secrets.token_bytes)
            sock.sendall(acceptor.reply(sock.recv(152)))
            acceptor.finish(sock.recv(96))
            sock.recv(1000)  # and never an acknowledgement

    thread, _ = in_thread(half_an_acceptor)
    with pytest.raises(LinkLost):
        dial(
            HOST,
            ends_of_a_link.port,
            identity=mac(0),
            cluster=cluster(3),
            peer_id=mac(1).device_id,
            binding=PLAN,
            timeout_s=2,
        )
    thread.join(5)


def test_dialling_a_silent_or_absent_mac(ends_of_a_link: Ends) -> None:
    def call(port: int, timeout_s: float) -> None:
        dial(
            HOST,
            port,
            identity=mac(0),
            cluster=cluster(),
            peer_id=mac(1).device_id,
            binding=PLAN,
            timeout_s=timeout_s,
        )

    with pytest.raises(LinkTimeout):
        call(ends_of_a_link.port, 0.1)  # in the backlog, never accepted
    with pytest.raises(LinkLost, match="Nothing listens"):
        call(1, 1.0)


def test_nobody_dials(ends_of_a_link: Ends) -> None:
    started = monotonic()
    with pytest.raises(LinkTimeout, match="did not link in time"):
        accept(
            ends_of_a_link.listener,
            identity=mac(1),
            cluster=cluster(),
            peer_id=mac(0).device_id,
            binding=PLAN,
            timeout_s=0.1,
        )
    assert monotonic() - started < 1.0


@contextmanager
def crowd(port: int, count: int, says: bytes) -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(count):
            sock = stack.enter_context(socket.create_connection((HOST, port)))
            with suppress(OSError):
                sock.sendall(says)
        yield


def test_for_want_of_descriptors_the_oldest_guest_makes_room(ends_of_a_link: Ends) -> None:
    lobby = ConcurrentHandshakes(ends_of_a_link.listener, _Handshake(mac(1), cluster(), mac(0).device_id, PLAN), None)
    with closing(lobby), ExitStack() as stack:
        stack.enter_context(crowd(ends_of_a_link.port, 1, b""))
        lobby._admit()
        (before,) = lobby._guests
        stack.enter_context(crowd(ends_of_a_link.port, 1, b""))
        with no_descriptor_left():
            lobby._admit()
            assert not len(lobby._guests)
            lobby._admit()
            lobby._admit()
        (after,) = lobby._guests
        assert after is not before


@pytest.mark.parametrize("says", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"\x00" * 2000])
def test_junk_and_silent_connections_do_not_hold_up_the_right_mac(
    ends_of_a_link: Ends, says: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concurrent_handshakes, "TLS_TIMEOUT_S", 60.0)  # the right Mac has less time to link
    with crowd(ends_of_a_link.port, 12, says):
        sender, receiver = ends_of_a_link.pair(timeout_s=9.0)
        sender.send(FrameType.ACK)
        receiver.recv(2.0)


@pytest.mark.parametrize("says", [b"", b"\x16\x03\x01\x02\x00\x01"])
@pytest.mark.promise("P11")
def test_hundreds_who_connect_between_any_two_steps_of_a_handshake_keep_no_member_out(
    ends_of_a_link: Ends, says: bytes
) -> None:
    lobby = ConcurrentHandshakes(ends_of_a_link.listener, _Handshake(mac(1), cluster(3), mac(0).device_id, PLAN), None)
    with closing(lobby), ExitStack() as stack:
        plain = stack.enter_context(socket.create_connection((HOST, ends_of_a_link.port)))
        plain.setblocking(False)
        context = client_context(mac(0), cluster(3))
        member = stack.enter_context(context.wrap_socket(plain, do_handshake_on_connect=False))

        def through(step: Callable[[], Any]) -> Any:
            """The result of a step of the member, while hundreds connect until it is done."""
            while True:
                with suppress(ssl.SSLWantReadError):
                    return step()
                stack.enter_context(crowd(ends_of_a_link.port, 200, says))
                with suppress(LinkTimeout):
                    lobby.wait(monotonic() + 0.05)

        through(member.do_handshake)
        leaf = member.getpeercert(binary_form=True) or b""
        acceptor = check_peer(leaf, cluster(3))
        member.sendall(Dialler(mac(0), cluster(3), acceptor, Kind.DATA, leaf, secrets.token_bytes).hello)
        assert len(through(partial(member.recv, REPLY_BYTES))) == REPLY_BYTES


def test_a_member_who_stalls_after_tls_is_sent_away(ends_of_a_link: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_plane, "HELLO_TIMEOUT_S", 0.1)
    gone = threading.Event()

    def stall() -> None:
        with socket.create_connection((HOST, ends_of_a_link.port)) as plain:
            plain.settimeout(3)
            with client_context(mac(0), cluster(3)).wrap_socket(plain) as sock, suppress(OSError):
                assert sock.recv(1) == b""
        gone.set()

    thread, _ = in_thread(stall)
    _, accepted = ends_of_a_link.link(dialler=2)
    thread.join(5)
    assert gone.is_set()
    assert isinstance(accepted["error"], LinkTimeout)


def test_a_frame_that_is_no_hello_after_the_handshake_is_refused(ends_of_a_link: Ends) -> None:
    accepting, accepted = in_thread(
        lambda: accept(
            ends_of_a_link.listener,
            identity=mac(1),
            cluster=cluster(3),
            peer_id=mac(0).device_id,
            binding=PLAN,
            timeout_s=1.0,
        )
    )
    with socket.create_connection((HOST, ends_of_a_link.port)) as plain:
        plain.settimeout(3)
        with client_context(mac(0), cluster(3)).wrap_socket(plain) as sock:
            member = check_peer(sock.getpeercert(True), cluster(3))
            certificate = sock.getpeercert(True) or b""
            dialler = Dialler(mac(0), cluster(3), member, Kind.DATA, certificate, secrets.token_bytes)
            sock.sendall(dialler.hello)
            reply = b""
            while len(reply) < REPLY_BYTES:
                reply += sock.recv(REPLY_BYTES - len(reply))
            auth, session = dialler.finish(reply)
            sock.sendall(auth + bytes(Sealer(session).seal(FrameType.ACK, parts=[PLAN])))
            with suppress(OSError):
                assert sock.recv(1) == b""
    accepting.join(5)
    assert "0x11" in accepted["error"].what


# ---- bytes that a listener on the wire sees


class Recorder:
    """A TCP relay that keeps every byte of both directions."""

    def __init__(self, target: int) -> None:
        self.seen: list[bytes] = []
        self._server = socket.create_server((HOST, 0))
        self.port = self._server.getsockname()[1]
        self._target = target
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        near, _ = self._server.accept()
        with near, socket.create_connection((HOST, self._target)) as far:
            back = threading.Thread(target=self._copy, args=(far, near))
            back.start()
            self._copy(near, far)
            back.join()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self.seen.append(data)
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._thread.join(5)
        self._server.close()


def test_a_recording_proxy_sees_no_plaintext(ends_of_a_link: Ends) -> None:
    recorder = Recorder(ends_of_a_link.port)
    sender, receiver = ends_of_a_link.pair(port=recorder.port)
    canaries = [b"canary " + secrets.token_hex(12).encode() for _ in range(200)]
    for canary in canaries:
        sender.send(FrameType.ACTIVATION, rows=1, request_id=canary[-16:], parts=[canary * 4])
        assert bytes(receiver.recv(2.0).body) == canary * 4
    sender.close()
    receiver.close()
    recorder.close()
    wire = b"".join(recorder.seen)
    assert len(wire) > 200 * 48
    for secret in [*canaries, b"canary", PLAN, cluster(3).roster.hash, b"MCH1", *(c[-16:] for c in canaries)]:
        assert secret not in wire
    names = [mac(n).text_id.encode() for n in (0, 1)]
    assert not any(name in wire for name in names)
