"""Two processes, leader and echo, connect every lane and take turns on them."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Final, NamedTuple

from core.link.data_plane import Receiver, Sender, accept, dial, listen
from core.local.hop.lanes import HopLane, SealedLane, all_lanes
from core.local.macs import LocalMacs
from core.local.second_process import SecondProcess
from core.trust.identity import Identity, open_identity
from core.trust.roster.bundle import Cluster

HOST: Final = "127.0.0.1"
MEET_S: Final = 30.0


class Invitation(NamedTuple):
    """Values that the echo needs to connect to the leader."""

    folder: Path  # of the echo's own key
    passphrase: bytes
    cluster: bytes
    leader_id: bytes
    port: int  # where the leader listens
    binding: bytes


class HopTurn(NamedTuple):
    """A number of round trips on one lane."""

    lane: str
    hops: int


class Spent(NamedTuple):
    """Cost of a turn for one end."""

    cpu_us: float  # per round trip, all threads
    rtt_us: tuple[float, ...]  # of each round trip
    parts_us: dict[str, float]  # wall clock per round trip


@contextmanager
def lead(other: SecondProcess, macs: LocalMacs) -> Iterator[dict[str, HopLane]]:
    """Connect the lanes, by name, with a process that runs `echo`. Raises LinkError or WorkerError."""
    me, peer = macs.identities
    binding = secrets.token_bytes(32)
    with ExitStack() as stack:
        listener = stack.enter_context(listen(HOST))
        port = listener.getsockname()[1]
        folder = peer.key_path.parent
        other.send(Invitation(folder, peer.passphrase, macs.cluster.encode(), me.device_id, port, binding))
        sealed_port, plain_port = other.receive(MEET_S)
        link = _Link(me, macs.cluster, peer.device_id, binding)
        sender = stack.enter_context(closing(link.dial(sealed_port)))
        receiver = stack.enter_context(closing(link.accept(listener)))
        out, into = (stack.enter_context(_plain(socket.create_connection((HOST, plain_port)))) for _ in range(2))
        yield all_lanes(sender, receiver, out, into)


def echo(pipe: Connection[Any, Any]) -> None:
    """Connect to the leader, then return what it sends in every turn until the pipe ends."""
    invitation: Invitation = pipe.recv()
    me = open_identity(invitation.folder, invitation.passphrase)
    link = _Link(me, Cluster.decode(invitation.cluster), invitation.leader_id, invitation.binding)
    with listen(HOST) as sealed, socket.create_server((HOST, 0)) as plain:
        pipe.send((sealed.getsockname()[1], plain.getsockname()[1]))
        receiver = link.accept(sealed)
        sender = link.dial(invitation.port)
        into, out = (_plain(plain.accept()[0]) for _ in range(2))
    lanes = all_lanes(sender, receiver, out, into)
    while True:
        turn: HopTurn = pipe.recv()
        pipe.send(take_turn(lanes, turn, _return))


def play(other: SecondProcess, lanes: Mapping[str, HopLane], turn: HopTurn) -> tuple[Spent, Spent]:
    other.send(turn)
    mine = take_turn(lanes, turn, _serve)
    return mine, other.receive(MEET_S)


def take_turn(lanes: Mapping[str, HopLane], turn: HopTurn, hit: Callable[[HopLane], None]) -> Spent:
    """Call `hit` once per hop. CPU time is that of the whole process: MLX works in threads of its own."""
    lane = lanes[turn.lane]
    sealed = lane if isinstance(lane, SealedLane) else None
    if sealed:
        sealed.forget()
    times = [perf_counter()]
    cpu = process_time()
    for _ in range(turn.hops):
        hit(lane)
        times.append(perf_counter())
    cpu = process_time() - cpu
    trips = tuple(1e6 * (after - before) for before, after in pairwise(times))
    return Spent(1e6 * cpu / turn.hops, trips, sealed.parts_us(turn.hops) if sealed else {})


def _serve(lane: HopLane) -> None:
    lane.send()
    lane.receive()


def _return(lane: HopLane) -> None:
    lane.receive()
    lane.send()


class _Link(NamedTuple):
    me: Identity
    cluster: Cluster
    other_id: bytes
    binding: bytes

    def dial(self, port: int) -> Sender:
        return dial(HOST, port, **self._who()).sender()

    def accept(self, listener: socket.socket) -> Receiver:
        return accept(listener, **self._who()).receiver()

    def _who(self) -> dict[str, Any]:
        return {
            "identity": self.me,
            "cluster": self.cluster,
            "peer_id": self.other_id,
            "binding": self.binding,
            "timeout_s": MEET_S,
        }


def _plain(sock: socket.socket) -> socket.socket:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock
