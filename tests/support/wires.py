"""A wire between two stages that drops, repeats, delays or holds TLS records, above TCP."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, Literal

from core.local.bare_worker import HOST

Fault = Literal["pass", "drop", "repeat", "hold"]
HEAD: Final = 5
APPLICATION: Final = 23
WAIT_S: Final = 120.0


class Wire:
    """Relays its connections.

    `judge` gets the number of each record of application data that goes up, counted over all connections. A held record
    continues, with all after it, after `release`.
    """

    def __init__(self, judge: Callable[[int], Fault]) -> None:
        self._judge = judge
        self._released = threading.Event()
        self._server = socket.create_server((HOST, 0))
        self._threads: list[threading.Thread] = []
        self._ends: list[socket.socket] = []
        self.records = 0
        self.calls = 0
        self.faults = 0

    def judge_by(self, judge: Callable[[int], Fault]) -> None:
        """Judge by another one from now on, and count from 0."""
        self._judge = judge
        self._released.clear()
        self.records = self.calls = self.faults = 0

    def before(self, port: int) -> int:
        """The port to dial instead of `port`."""
        if not self._threads:
            self._spawn(self._serve, port)
        return int(self._server.getsockname()[1])

    def release(self) -> None:
        """Release all held records, and hold none any more."""
        self._released.set()

    def close(self) -> None:
        """Close all connections."""
        self.release()
        for end in (self._server, *self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        for thread in self._threads:
            thread.join()

    def _spawn(self, work: Callable[..., None], *arguments: object) -> None:
        self._threads.append(threading.Thread(target=work, args=arguments))
        self._threads[-1].start()

    def _serve(self, port: int) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                far = socket.create_connection((HOST, port))
                self.calls += 1
                self._ends += [near, far]
                self._spawn(self._up, near, far)
                self._spawn(self._down, far, near)

    def _up(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while record := _read_record(source):
                for _ in range(self._copies(record)):
                    target.sendall(record)
        _hang_up(source, target)

    def _copies(self, record: bytes) -> int:
        if record[0] != APPLICATION:
            return 1
        fault = self._judge(self.records)
        self.records += 1
        self.faults += fault != "pass"
        if fault == "hold":
            self._released.wait(WAIT_S)
        return {"pass": 1, "drop": 0, "repeat": 2, "hold": 1}[fault]

    def _down(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        _hang_up(source, target)


@contextmanager
def wire(judge: Callable[[int], Fault]) -> Iterator[Wire]:
    """A wire that is closed at the end."""
    made = Wire(judge)
    try:
        yield made
    finally:
        made.close()


def _read_record(source: socket.socket) -> bytes:
    head = _exactly(source, HEAD)
    return head + _exactly(source, int.from_bytes(head[3:], "big")) if head else b""


def _exactly(source: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = source.recv(count - len(data))
        if not part:
            return b""
        data += part
    return data


def _hang_up(*ends: socket.socket) -> None:
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


Reroute = Callable[[int, int], int]


def before(stage: int, made: Wire) -> Reroute:
    return lambda index, port: made.before(port) if index == stage else port
