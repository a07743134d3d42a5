"""Rounds of hops of 8 KiB, there and back between two processes of this machine, leader and echo.

The lanes take turns so that noise hits all of them. Each lane has one connection per direction, as a ring has:
`SealedLane` works as a ring does, array to array; `RawLane` sends the same array over plain TCP.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any, Final, NamedTuple, Protocol

import mlx.core as mx
import msgspec

from core.errors import LinkLost
from core.link.arrays import decode_arrays, encode_arrays
from core.link.data_plane import Receiver, Sender, accept, dial, listen
from core.link.frames import FrameType
from core.local.macs import LocalMacs, make_macs
from core.local.second_process import SecondProcess, second_process
from core.trust.identity import Identity, open_identity
from core.trust.roster.bundle import Cluster

MAX_CPU_RATIO: Final = 4.0  # CPU of a sealed hop over a plain one
WARM_UP_HOPS: Final = 50

HOST: Final = "127.0.0.1"
MEET_S: Final = 30.0

SHAPE: Final = (1, 1, 4096)
PAYLOAD_BYTES: Final = 2 * SHAPE[-1]
WAIT_S: Final = 30.0

REQUEST: Final = b"bench of one hop"


class HopLane(Protocol):
    """One end of a lane, with a payload that `send` sends and `receive` replaces."""

    def send(self) -> None:
        """Send the payload."""

    def receive(self) -> None:
        """Wait for the other end's payload; a lane of arrays evaluates it."""


# this end's lanes by name, over its sealed links and its plain connections, each there and back
LanesOf = Callable[[Sender, Receiver, socket.socket, socket.socket], dict[str, HopLane]]


class SealedLane:
    """Arrays over the real data links."""

    def __init__(self, sender: Sender, receiver: Receiver) -> None:
        self._sender, self._receiver = sender, receiver
        self._array = a_payload()

    def send(self) -> None:
        parts = encode_arrays([self._array])
        self._sender.send(FrameType.ACTIVATION, request_id=REQUEST, rows=1, layers=(0, 1), plan_gen=1, parts=parts)

    def receive(self) -> None:
        (self._array,) = decode_arrays(self._receiver.recv(WAIT_S).body)
        mx.eval(self._array)


class RawLane:
    """The same array over plain TCP."""

    def __init__(self, out: socket.socket, into: socket.socket) -> None:
        self._out, self._into = out, into
        self._array = a_payload()
        self._room = memoryview(bytearray(PAYLOAD_BYTES))

    def send(self) -> None:
        """The array's own bytes, without a copy."""
        self._out.sendall(bytes_of(self._array))

    def receive(self) -> None:
        fill(self._into, self._room)
        raw: Any = self._room
        self._array = mx.array(raw).view(mx.bfloat16).reshape(SHAPE)
        mx.eval(self._array)


def array_lanes(sender: Sender, receiver: Receiver, out: socket.socket, into: socket.socket) -> dict[str, HopLane]:
    """This end of both lanes, over its two sealed links and its two plain connections."""
    return {"sealed": SealedLane(sender, receiver), "raw": RawLane(out, into)}


def a_payload() -> mx.array:
    """An evaluated array of one position of a model with a hidden size of 4096."""
    array = mx.random.normal(SHAPE).astype(mx.bfloat16)
    mx.eval(array)
    return array


def bytes_of(array: mx.array) -> memoryview:
    """Bytes of a bfloat16 array without a copy; the buffer protocol has no bfloat16."""
    bits: Any = array.view(mx.uint16)
    return memoryview(bits).cast("B")


def fill(sock: socket.socket, room: memoryview) -> None:
    """Read until `room` is full. Raises LinkLost."""
    got = 0
    while got < len(room):
        count = sock.recv_into(room[got:] if got else room)
        if not count:
            raise LinkLost("The other end of the bench closed its socket.")
        got += count


class Invitation(NamedTuple):
    """Values that the echo needs to connect to the leader."""

    folder: Path  # of the echo's own key
    passphrase: bytes
    cluster: bytes
    leader_id: bytes
    port: int  # where the leader listens
    binding: bytes


@contextmanager
def lead(other: SecondProcess, macs: LocalMacs, lanes_of: LanesOf) -> Iterator[dict[str, HopLane]]:
    """Connect the lanes, by name, with a process that runs `echo`. Raises LinkError or WorkerError."""
    me, peer = macs.identities
    binding = secrets.token_bytes(32)
    with ExitStack() as stack:
        listener = stack.enter_context(listen(HOST))
        port = listener.getsockname()[1]
        folder = peer.key_path.parent
        other.send(Invitation(folder, peer.passphrase, macs.cluster.encode(), me.device_id, port, binding))
        sealed_port, plain_port = other.receive(MEET_S)
        ends = _bound(me, macs.cluster, peer.device_id, binding)
        sender = stack.enter_context(closing(dial(HOST, sealed_port, **ends).sender()))
        receiver = stack.enter_context(closing(accept(listener, **ends).receiver()))
        out, into = (stack.enter_context(_plain(socket.create_connection((HOST, plain_port)))) for _ in range(2))
        yield lanes_of(sender, receiver, out, into)


def echo(lanes_of: LanesOf, pipe: Connection[Any, Any]) -> None:
    """Connect to the leader, then return what it sends in every turn until the pipe ends."""
    invitation: Invitation = pipe.recv()
    me = open_identity(invitation.folder, invitation.passphrase)
    ends = _bound(me, Cluster.decode(invitation.cluster), invitation.leader_id, invitation.binding)
    with listen(HOST) as sealed, socket.create_server((HOST, 0)) as plain:
        pipe.send((sealed.getsockname()[1], plain.getsockname()[1]))
        receiver = accept(sealed, **ends).receiver()
        sender = dial(HOST, invitation.port, **ends).sender()
        into, out = (_plain(plain.accept()[0]) for _ in range(2))
    lanes = lanes_of(sender, receiver, out, into)
    while True:
        name, hops = pipe.recv()
        lane = lanes[name]
        pipe.send(take_turn(hops, lane.receive, lane.send)[0])


def take_turn(hops: int, first: Callable[[], None], then: Callable[[], None]) -> tuple[float, float]:
    """CPU time of a hop by all threads of this process, as MLX works in its own, and the median round trip, in µs."""
    times, cpu = [perf_counter()], process_time()
    for _ in range(hops):
        first()
        then()
        times.append(perf_counter())
    cpu = process_time() - cpu
    return 1e6 * cpu / hops, 1e6 * median(after - before for before, after in pairwise(times))


def _bound(identity: Identity, cluster: Cluster, peer_id: bytes, binding: bytes) -> dict[str, Any]:
    """Arguments of `dial` and `accept` for either end of a link."""
    return {"identity": identity, "cluster": cluster, "peer_id": peer_id, "binding": binding, "timeout_s": MEET_S}


def _plain(sock: socket.socket) -> socket.socket:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class LaneTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of one lane. Times in microseconds per hop."""

    cpu_us: tuple[float, float]  # of the leader and the echo, all threads
    rtt_us: float  # median round trip

    @property
    def side_us(self) -> float:
        return sum(self.cpu_us) / 2


Round = dict[str, LaneTurn]  # by lane


def play_rounds(rounds: int, hops: int, lanes_of: LanesOf = array_lanes) -> list[Round]:
    """Play `rounds` rounds of `hops` hops on every lane. Raises LinkError or WorkerError."""
    with (
        TemporaryDirectory(prefix="macluster-hop-") as folder,
        second_process(partial(echo, lanes_of)) as other,
        lead(other, make_macs(Path(folder), 2), lanes_of) as lanes,
    ):

        def one_round(hops: int) -> Round:
            return {name: one_turn(name, hops) for name in lanes}

        def one_turn(name: str, hops: int) -> LaneTurn:
            other.send((name, hops))
            cpu_us, rtt_us = take_turn(hops, lanes[name].send, lanes[name].receive)
            return LaneTurn(cpu_us=(cpu_us, other.receive(MEET_S)), rtt_us=rtt_us)

        one_round(WARM_UP_HOPS)
        return [one_round(hops) for _ in range(rounds)]


def cpu_ratio(rounds: Sequence[Round]) -> float:
    """CPU of a sealed hop over a plain one: the median of the ratios within a round."""
    return median(turns["sealed"].side_us / turns["raw"].side_us for turns in rounds)
