"""Cables between network namespaces with a chosen delay, rate and loss."""

from __future__ import annotations

import fcntl
import heapq
import os
import random
import select
import shutil
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

from tests.support.lan import bridge, give_addresses, ip

TUN: Final = "/dev/net/tun"
SET_INTERFACE: Final = 0x400454CA  # TUNSETIFF
SET_CARRIER: Final = 0x400454E2  # TUNSETCARRIER
TAP: Final = 0x0002 | 0x1000  # one frame per read, without a prefix
MAX_FRAME: Final = 65536
WAIT_S: Final = 0.5


class Fate(NamedTuple):
    """Treatment of every frame on a cable; `rate` in bytes a second, 0: unlimited."""

    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    rate: float = 0.0


NO_HARM: Final = Fate()


class Wire:
    """A cable: two TAPs of these names, and a thread that carries frames between them."""

    def __init__(self, near: str, far: str, fate: Fate = NO_HARM, seed: int = 0) -> None:
        self.fate = fate
        self._dice = random.Random(seed)
        self._near, self._far = _tap(near), _tap(far)
        self._free = {self._near: 0.0, self._far: 0.0}
        self._ending, self._end = os.pipe()
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def plug(self, *, in_: bool) -> None:
        """Pull the cable at its near end, or plug it in."""
        fcntl.ioctl(self._near, SET_CARRIER, struct.pack("i", in_))

    def close(self) -> None:
        """Close the cable and remove its interfaces."""
        os.write(self._end, b"!")
        self._thread.join()
        for fd in (self._near, self._far, self._ending, self._end):
            os.close(fd)

    def _carry(self) -> None:
        queue: list[tuple[float, int, int, bytes]] = []
        numbers = count()
        while True:
            wait_s = max(0.0, queue[0][0] - monotonic()) if queue else WAIT_S
            ready = select.select([self._near, self._far, self._ending], [], [], wait_s)[0]
            if self._ending in ready:
                return
            for source in ready:
                target = self._far if source == self._near else self._near
                with suppress(OSError):  # the interface is down, or the cable is out
                    frame = os.read(source, MAX_FRAME)
                    if self._dice.random() >= self.fate.loss:
                        heapq.heappush(queue, (self._due(target, len(frame)), next(numbers), target, frame))
            while queue and queue[0][0] <= monotonic():
                _, _, target, frame = heapq.heappop(queue)
                with suppress(OSError):
                    os.write(target, frame)

    def _due(self, target: int, size: int) -> float:
        """When a frame of that size has passed."""
        at, fate = monotonic(), self.fate
        if fate.rate:
            at = self._free[target] = max(self._free[target], at) + size / fate.rate
        return at + max(0.0, fate.delay_s + self._dice.uniform(-fate.jitter_s, fate.jitter_s))


def wire_to_bridge(namespace: str, address: str, seed: int = 0) -> Wire:
    """A cable between a namespace and the bridge; it replaces the existing one."""
    near, far = f"{bridge()}n", f"{bridge()}f"
    wire = Wire(near, far, seed=seed)
    _replace_port(namespace, address, near)
    ip("link", "set", far, "master", bridge(), "up")
    return wire


@contextmanager
def cable(one: str, other: str, interface: str, fate: Fate) -> Iterator[Wire]:
    """A cable between two namespaces, with link-local addresses; both ends are called `interface`."""
    taps = f"{bridge()}a", f"{bridge()}b"
    wire = Wire(*taps, fate)
    try:
        for tap, name in zip(taps, (one, other), strict=True):
            ip("link", "set", tap, "netns", name)
            ip("-n", name, "link", "set", tap, "name", interface)
        give_addresses(one, other, interface)
        yield wire
    finally:
        wire.close()


def _tap(name: str) -> int:
    fd = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, SET_INTERFACE, struct.pack("16sH22x", name.encode(), TAP))
    return fd


def _replace_port(namespace: str, address: str, tap: str) -> None:
    """Make our end of the cable the interface of that namespace; the old interface is put aside."""
    here: Sequence[str] = ("-n", namespace)
    ip(*here, "link", "set", "eth0", "down")
    ip(*here, "addr", "flush", "dev", "eth0")
    ip(*here, "link", "set", "eth0", "name", "aside")
    ip("link", "set", tap, "netns", namespace)
    ip(*here, "link", "set", tap, "name", "eth0")
    ip(*here, "addr", "add", f"{address}/24", "brd", "+", "dev", "eth0")
    ip(*here, "link", "set", "eth0", "up", "multicast", "on")
    ip(*here, "route", "add", "224.0.0.0/4", "dev", "eth0")


def can_network() -> str:
    """Reason why no such cable can be made here, or ""."""
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("nft"):
        return "needs root, iproute2 and nftables to make a network namespace"
    return "" if Path(TUN).exists() else f"needs {TUN}"
