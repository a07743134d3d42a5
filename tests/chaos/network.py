"""Macs in network namespaces of one bridge, and what can be done to the cable of one of them."""

from __future__ import annotations

import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

import msgspec

from core.settings import CONTROL_PORT
from tests.chaos.mac import NAMES, ROOT, Place
from tests.support.lan import bridge, inside, ip, lan, needs_root

TUN: Final = "/dev/net/tun"
SET_INTERFACE: Final = 0x400454CA  # TUNSETIFF
SET_CARRIER: Final = 0x400454E2  # TUNSETCARRIER
TAP: Final = 0x0002 | 0x1000  # a frame a read, with nothing before it
MAX_FRAME: Final = 65536
HOOKS: Final = {"input": "iif", "output": "oif"}
WAIT_S: Final = 0.5
CLOSE_S: Final = 10.0


class Fate(NamedTuple):
    """What a cable does to every frame; `rate` in bytes a second, 0: as fast as it can."""

    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    rate: float = 0.0


class Wire:
    """The cable between the namespace of a Mac and the bridge: two TAPs, and a thread that carries frames over."""

    def __init__(self, namespace: str, address: str, seed: int) -> None:
        self.fate = Fate()
        self._dice = random.Random(seed)
        self._near, self._far = _tap(f"{bridge()}n"), _tap(f"{bridge()}f")
        self._free = {self._near: 0.0, self._far: 0.0}
        self._ending, self._end = os.pipe()
        _replace_port(namespace, address, f"{bridge()}n")
        ip("link", "set", f"{bridge()}f", "master", bridge(), "up")
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def plug(self, *, in_: bool) -> None:
        """Pull the cable out of the Mac, or put it in."""
        fcntl.ioctl(self._near, SET_CARRIER, struct.pack("i", in_))

    def close(self) -> None:
        """The interfaces go with it."""
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
        """When a frame of that size is over."""
        at, fate = monotonic(), self.fate
        if fate.rate:
            at = self._free[target] = max(self._free[target], at) + size / fate.rate
        return at + max(0.0, fate.delay_s + self._dice.uniform(-fate.jitter_s, fate.jitter_s))


class Net:
    """A bridge with a namespace for each Mac; the cable of the last one is a `Wire`, and its firewall is ours."""

    def __init__(self, addresses: dict[str, str], wire: Wire) -> None:
        self.places = tuple(Place(host, CONTROL_PORT, tuple(inside(name))) for name, host in addresses.items())
        self.wire = wire
        self.last = list(addresses)[-1]
        self.host = addresses[self.last]
        self._nft("add table inet chaos")
        for hook in HOOKS:
            self._nft(f"add chain inet chaos {hook} {{ type filter hook {hook} priority 0; policy accept; }}")

    def cut(self) -> None:
        """Nothing passes to or from the last Mac, and nobody is told."""
        for hook, way in HOOKS.items():
            self._nft(f"add rule inet chaos {hook} {way} lo accept")
            self._nft(f"add rule inet chaos {hook} drop")

    def join(self) -> None:
        """All passes again."""
        self._nft("flush table inet chaos")

    @contextmanager
    def flapping(self, device_id: str, port: int) -> Iterator[None]:
        """Meanwhile another host says every second that this Mac comes and goes."""
        with self._beside("flapping", device_id, self.host, str(port)):
            yield

    @contextmanager
    def meddler(self) -> Iterator[Meddler]:
        """Somebody sits on the data links to the last Mac; links that stand already pass it by."""
        with self._beside("meddling") as process:
            meddler = Meddler(process)
            self._nft("add table ip chaos_nat")
            self._nft("add chain ip chaos_nat in { type nat hook prerouting priority -100; policy accept; }")
            self._nft(f"add rule ip chaos_nat in tcp dport != {CONTROL_PORT} redirect to :{meddler.port}")
            try:
                yield meddler
            finally:
                self._nft("delete table ip chaos_nat")

    def _nft(self, words: str) -> None:
        subprocess.run(inside(self.last, "nft", words), check=True, capture_output=True)

    @contextmanager
    def _beside(self, module: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """A program in the namespace of the last Mac, which ends when its standard input does."""
        command = inside(self.last, sys.executable, "-m", f"tests.chaos.{module}", *words)
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin
        assert process.stdout
        try:
            yield process
        finally:
            process.stdin.close()
            try:
                process.wait(CLOSE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()


class Meddled(msgspec.Struct, frozen=True):
    """What was done to so many records, and after how long at most the receiver had closed the link."""

    faults: int
    closed_s: float


class Meddler:
    """Tells the process on the wire what to do to the next record that passes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.port = int(self._line())

    def arm(self, fault: str) -> None:
        """To the next record of application data."""
        assert self._process.stdin
        self._process.stdin.write(fault.encode() + b"\n")
        self._process.stdin.flush()

    def done(self) -> Meddled:
        """What came of it since it was armed."""
        self.arm("tell")
        return msgspec.json.decode(self._line(), type=Meddled)

    def _line(self) -> bytes:
        assert self._process.stdout
        return self._process.stdout.readline()


@contextmanager
def net(macs: int, seed: int) -> Iterator[Net]:
    """Namespaces for the first `macs` Macs; nothing of them stays. Needs root."""
    names = [f"mc-{name}-{os.getpid()}" for name in NAMES[: macs - 1]] + [f"mc-last-{os.getpid()}"]
    with ExitStack() as stack:
        addresses = stack.enter_context(lan(*names))
        wire = Wire(names[-1], addresses[names[-1]], seed)
        stack.callback(wire.close)
        yield Net(addresses, wire)


def _tap(name: str) -> int:
    fd = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, SET_INTERFACE, struct.pack("16sH22x", name.encode(), TAP))
    return fd


def _replace_port(namespace: str, address: str, tap: str) -> None:
    """Our end of the cable becomes the interface of that namespace; the one that it had is put aside."""
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
    """Why no network can be made here, or ""."""
    if needs_root.args[0]:
        return str(needs_root.kwargs["reason"])
    return "" if Path(TUN).exists() else f"needs {TUN}"
