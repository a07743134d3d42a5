"""Four lanes that carry 8 KiB between two processes, with one connection per direction, as a ring has.

`SealedLane` works as a ring does, array to array; `RawLane` sends the same array over plain TCP. `SealedMemory` and
`RawMemory` do so without arrays, since waking MLX costs as much as a whole plain hop.
"""

from __future__ import annotations

import socket
from time import perf_counter
from typing import Any, Final, Protocol

import mlx.core as mx

from core.errors import LinkLost
from core.link.arrays import decode_arrays, encode_arrays
from core.link.data_plane import Receiver, Sender
from core.link.frames import FrameType

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


class SealedLane:
    """Arrays over the real data links."""

    def __init__(self, sender: Sender, receiver: Receiver) -> None:
        self._sender, self._receiver = sender, receiver
        self._array = a_payload()
        self._codec_s = 0.0

    def send(self) -> None:
        started = perf_counter()
        parts = encode_arrays([self._array])
        self._codec_s += perf_counter() - started
        self._sender.send(FrameType.ACTIVATION, request_id=REQUEST, rows=1, layers=(0, 1), plan_gen=1, parts=parts)

    def receive(self) -> None:
        body = self._receiver.recv(WAIT_S).body
        started = perf_counter()
        (self._array,) = decode_arrays(body)
        mx.eval(self._array)
        self._codec_s += perf_counter() - started

    def forget(self) -> None:
        self._codec_s = 0.0
        self._sender.stats.reset()
        self._receiver.stats.reset()

    def parts_us(self, hops: int) -> dict[str, float]:
        """Microseconds per hop since `forget`, wall clock. TLS is inside `send`; its other half is in recv."""
        sent, received = self._sender.stats, self._receiver.stats
        seconds = {"codec": self._codec_s, "seal": sent.seal_s, "send": sent.send_s, "open": received.open_s}
        return {name: 1e6 * spent / hops for name, spent in seconds.items()}


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


class SealedMemory:
    """The same number of bytes over the real data links, from memory to memory."""

    def __init__(self, sender: Sender, receiver: Receiver) -> None:
        self._sender, self._receiver = sender, receiver
        self._room = memoryview(bytearray(PAYLOAD_BYTES))

    def send(self) -> None:
        self._sender.send(
            FrameType.ACTIVATION, request_id=REQUEST, rows=1, layers=(0, 1), plan_gen=1, parts=[self._room]
        )

    def receive(self) -> None:
        self._receiver.recv(WAIT_S)


class RawMemory:
    """The same number of bytes over plain TCP, from memory to memory."""

    def __init__(self, out: socket.socket, into: socket.socket) -> None:
        self._out, self._into = out, into
        self._room = memoryview(bytearray(PAYLOAD_BYTES))

    def send(self) -> None:
        self._out.sendall(self._room)

    def receive(self) -> None:
        fill(self._into, self._room)


def all_lanes(sender: Sender, receiver: Receiver, out: socket.socket, into: socket.socket) -> dict[str, HopLane]:
    """This end of every lane, over its two sealed links and its two plain connections."""
    return {
        "sealed": SealedLane(sender, receiver),
        "raw": RawLane(out, into),
        "memory_sealed": SealedMemory(sender, receiver),
        "memory_raw": RawMemory(out, into),
    }


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
