"""Macs in network namespaces of one bridge, and faults of one Mac's cable."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import msgspec

from core.settings import CONTROL_PORT
from tests.chaos.mac import NAMES, ROOT, Place
from tests.support.lan import inside, lan
from tests.support.taps import Wire, wire_to_bridge

HOOKS: Final = {"input": "iif", "output": "oif"}
CLOSE_S: Final = 10.0


class Net:
    """A bridge with a namespace for each Mac; the last one has a `Wire` as its cable, and a firewall of ours."""

    def __init__(self, addresses: dict[str, str], wire: Wire) -> None:
        self.places = tuple(Place(host, CONTROL_PORT, tuple(inside(name))) for name, host in addresses.items())
        self.wire = wire
        self.last = list(addresses)[-1]
        self.host = addresses[self.last]
        self._nft("add table inet chaos")
        for hook in HOOKS:
            self._nft(f"add chain inet chaos {hook} {{ type filter hook {hook} priority 0; policy accept; }}")

    def cut(self) -> None:
        """Drop all packets to or from the last Mac, without notice to any end."""
        for hook, way in HOOKS.items():
            self._nft(f"add rule inet chaos {hook} {way} lo accept")
            self._nft(f"add rule inet chaos {hook} drop")

    def join(self) -> None:
        """Let all packets pass again."""
        self._nft("flush table inet chaos")

    @contextmanager
    def flapping(self, device_id: str, port: int) -> Iterator[None]:
        """Announce and remove this Mac every second from another host, for a while."""
        with self._beside("flapping", device_id, self.host, str(port)):
            yield

    @contextmanager
    def meddler(self) -> Iterator[Meddler]:
        """Put a meddler on new data links to the last Mac; existing links bypass it."""
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
        """A program in the last Mac's namespace that ends with its standard input."""
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
    """The number of spoilt records, and the longest time until a receiver closed the link."""

    faults: int
    closed_s: float


class Meddler:
    """Sends commands to the meddling process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.port = int(self._line())

    def arm(self, fault: str) -> None:
        """Arm a fault for the next record of application data."""
        assert self._process.stdin
        self._process.stdin.write(fault.encode() + b"\n")
        self._process.stdin.flush()

    def done(self) -> Meddled:
        """The result since it was armed."""
        self.arm("tell")
        return msgspec.json.decode(self._line(), type=Meddled)

    def _line(self) -> bytes:
        assert self._process.stdout
        return self._process.stdout.readline()


@contextmanager
def net(macs: int, seed: int) -> Iterator[Net]:
    """Namespaces for the first `macs` Macs, removed at the end. Needs root."""
    names = [f"mc-{name}-{os.getpid()}" for name in NAMES[: macs - 1]] + [f"mc-last-{os.getpid()}"]
    with ExitStack() as stack:
        addresses = stack.enter_context(lan(*names))
        wire = wire_to_bridge(names[-1], addresses[names[-1]], seed)
        stack.callback(wire.close)
        yield Net(addresses, wire)
