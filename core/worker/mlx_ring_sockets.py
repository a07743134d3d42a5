"""MLX's ring between two socket pairs of this process: whatever it sends to another rank comes out of them.

MLX listens for the rank before and connects to the next one while it holds the interpreter, so nothing else runs here
meanwhile: a child makes the connection that MLX waits for, and the one that MLX makes waits in the backlog of a
listener. Then socket pairs take the place of both, so it never matters who else may have connected.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from core.errors import GroupFailed
from core.link.tunnel import local_pair
from core.worker.group_init import INIT_S, Group, init_group
from core.worker.group_variables import ring_hosts, ring_variables

HOST: Final = "127.0.0.1"
# MLX asks its sockets again and again, each of its threads on a core of its own; these wait instead, and not longer,
# since the same thread is to send and to receive, by turns (seconds, microseconds)
TURN_US: Final = 200
TURN: Final = struct.pack("ll", 0, TURN_US)
CALLER: Final = """
import socket, sys, time
until = time.monotonic() + float(sys.argv[2])
while time.monotonic() < until:
    try:
        socket.create_connection(("127.0.0.1", int(sys.argv[1])))
        break
    except OSError:
        time.sleep(0.002)
"""


class MlxRingSockets(NamedTuple):
    """The group, and the ends of what it says to the rank before and to the next one."""

    group: Group
    before: socket.socket
    after: socket.socket


def mlx_ring_sockets(rank: int, world: int) -> MlxRingSockets:
    """A ring of `world` ranks as MLX sees it from `rank`. Once in the life of a process. Raises GroupFailed."""
    with (
        _reserved() as own,
        socket.create_server((HOST, 0)) as after,
        TemporaryDirectory(prefix="macluster-") as folder,
    ):
        own_port, next_port = _port(own), _port(after)
        hosts = Path(folder) / "hosts.json"
        hosts.write_bytes(ring_hosts(rank, world, own_port, next_port))
        command = [sys.executable, "-I", "-S", "-c", CALLER, str(own_port), str(INIT_S)]
        caller = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            group = init_group("ring", ring_variables(rank, hosts), world)
        finally:
            caller.kill()
            caller.wait()
        return MlxRingSockets(group, *_taken_over(own_port, next_port))


def _reserved() -> socket.socket:
    """A port that nobody else is given, and where MLX may listen."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind((HOST, 0))
    return sock


def _port(sock: socket.socket) -> int:
    return int(sock.getsockname()[1])


def _taken_over(own_port: int, next_port: int) -> tuple[socket.socket, socket.socket]:
    """Other ends of the two connections of MLX, which it goes on using by their descriptors."""
    before = after = None
    for name in os.listdir("/dev/fd"):
        match _ends(int(name)):
            case (port, far) if port == own_port and far:
                before = int(name)
            case (_, port) if port == next_port:
                after = int(name)
    if before is None or after is None:
        raise GroupFailed("MLX made no connections for its ring.")
    return _replaced(before), _replaced(after)


def _ends(descriptor: int) -> tuple[int, int]:
    """The ports of a TCP connection, its own and the other one's; 0 where there is none."""
    try:
        sock = socket.socket(fileno=descriptor)
    except OSError:
        return 0, 0
    try:
        if sock.family != socket.AF_INET:
            return 0, 0
        return _port(sock), int(sock.getpeername()[1])
    except OSError:
        return 0, 0
    finally:
        sock.detach()


def _replaced(descriptor: int) -> socket.socket:
    ours, theirs = local_pair()
    for limit in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        theirs.setsockopt(socket.SOL_SOCKET, limit, TURN)
    os.dup2(theirs.fileno(), descriptor, inheritable=False)
    theirs.close()
    return ours
