"""MLX's ring over socket pairs of this process, so that all its traffic passes through this process.

MLX listens for the previous rank and connects to the next one while it holds the interpreter, so no other code of this
process can run: a child process makes the connection that MLX waits for, and MLX's own connection waits in a listener's
backlog. Socket pairs then replace both, so it does not matter if another program connected.
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
# MLX polls its sockets in a loop, with a core per thread; these sockets wait instead, and only briefly, since the same
# thread sends and receives in turns
TURN_US: Final = 200
TURN: Final = struct.pack("ll", 0, TURN_US)  # seconds, microseconds
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
    """The group and this process's ends of its connections."""

    group: Group
    before: socket.socket  # to the previous rank
    after: socket.socket  # to the next rank


def mlx_ring_sockets(rank: int, world: int) -> MlxRingSockets:
    """Open MLX's ring of `world` ranks as `rank`; works once per process. Raises GroupFailed."""
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
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind((HOST, 0))
    return sock


def _port(sock: socket.socket) -> int:
    return int(sock.getsockname()[1])


def _taken_over(own_port: int, next_port: int) -> tuple[socket.socket, socket.socket]:
    """Replace MLX's two connections by socket pairs, under the same descriptors; our ends of them."""
    before = after = None
    for name in os.listdir("/dev/fd"):
        match _ends(int(name)):
            case (port, far) if port == own_port and far:
                before = int(name)
            case (_, port) if port == next_port:
                after = int(name)
    if before is None or after is None:
        raise GroupFailed("MLX opened no connections for its ring.")
    return _replaced(before), _replaced(after)


def _ends(descriptor: int) -> tuple[int, int]:
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
